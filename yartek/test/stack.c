/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Jobs that use more and more of the main stack. Prints what of it was seen. */
#include "dig.h"
#include "port.h"
#include "stack.h"

enum { BYTES = 2048, SHALLOW = 8, DEEP = BYTES / 32 };

static uint32_t faults, asked = SHALLOW, kept[4] = { 1, 2, 3, 4 };
static volatile uint32_t done;

void work(const struct yk_job *job);
void work(const struct yk_job *job)
{
	(void)job;
	dig(asked);
	done = asked;
}

void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t address)
{
	faults++;
	say("stack", why == YK_WHY_STACK && !job && address == (uintptr_t)yk_port_stack - BYTES);
}

bool yk_background(void)
{
	static uint32_t before = BYTES;
	uint32_t unused;

	if (done != asked)
		return false;
	yk_stack_look();
	yk_stack_look();
	unused = yk_stack_unused();
	if (asked == SHALLOW) {
		say("shallow", unused > 0 && unused < before);
		say("faults when shallow", faults);
		before = unused;
		asked = DEEP;
		return true;
	}
	say("unused when deep", unused);
	say("faults when deep", faults);
	yk_port_exit(0);
}

int main(void)
{
	say("watched at first", yk_stack_is_watched());
	yk_stack_look();
	/* More than there is: the variables stay as they are. */
	yk_stack_watch(~(uint32_t)0);
	say("variables", kept[0] == 1 && kept[3] == 4 && asked == SHALLOW && !faults);
	say("all", yk_stack_unused() / 1024 + 1 >= ((uintptr_t)yk_port_stack -
						    (uintptr_t)yk_port_bss_end) / 1024);
	yk_stack_watch(BYTES);
	yk_run();
}
