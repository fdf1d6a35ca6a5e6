/* What a put of 64 bytes costs: so many puts into a FIFO that holds them all. Run it under a counter of instructions, twice, with
 * different counts; the difference is that of the puts. Nobody need read: the writer looks at the reader's position when its own
 * knowledge leaves no room, and at nothing else of it.
 *
 *   put_cost COUNT */
#include <asmp_rt.h>

#include <stdlib.h>

int main(int argc, char **argv)
{
	int count = argc == 2 ? atoi(argv[1]) : 0;
	char record[64] = "record";

	if (count < 1 || rtf_create(0, 64 * count) != 0)
		return 1;
	for (int put = 0; put < count; put++)
		if (rtf_put(0, record, sizeof(record)) != sizeof(record))
			return 2;
	return rtf_destroy(0) != 0;
}
