/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "sine.h"

int32_t sine(uint32_t angle)
{
	static const uint16_t quarter[] = {
		0, 402, 804, 1205, 1606, 2006, 2404, 2801, 3196, 3590,
		3981, 4370, 4756, 5139, 5520, 5897, 6270, 6639, 7005, 7366,
		7723, 8076, 8423, 8765, 9102, 9434, 9760, 10080, 10394, 10702,
		11003, 11297, 11585, 11866, 12140, 12406, 12665, 12916, 13160, 13395,
		13623, 13842, 14053, 14256, 14449, 14635, 14811, 14978, 15137, 15286,
		15426, 15557, 15679, 15791, 15893, 15986, 16069, 16143, 16207, 16261,
		16305, 16340, 16364, 16379, 16384,
	};
	uint32_t in_quarter = angle % QUARTER_TURN;
	uint32_t place, part, value;

	if (angle & QUARTER_TURN)
		in_quarter = QUARTER_TURN - in_quarter;
	place = in_quarter / 256;
	part = in_quarter % 256;
	/* Nothing follows the last: its part is 0. */
	value = quarter[place] * (256 - part) + quarter[place + (part != 0)] * part;
	value = (value + 128) / 256;
	return angle & 2 * QUARTER_TURN ? -(int32_t)value : (int32_t)value;
}

int32_t cosine(uint32_t angle)
{
	return sine(angle + QUARTER_TURN);
}
