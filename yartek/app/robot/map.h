/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The robot's map: a grid of cells that count the last readings of the sonars that fell into them,
 * and where the robot is, from the counters of its wheels. What is said here of units and rounding
 * is all that it takes to compute the same map from the same readings: crates/yartek/tests does.
 *
 * Jobs alone may call it, which do not preempt each other; but a reader only reads cells.
 * Every value is in 32 bits. `>>` rounds down.
 */
#ifndef ROBOT_MAP_H
#define ROBOT_MAP_H

#include <stdbool.h>
#include <stdint.h>

enum { MAP_CELL_MM = 50 };

/* --- Where the robot is. --- */

/*
 * The heading is by how much the right counter has grown more than the left one since the start, in
 * 65536th parts of a turn: the wheels are so far apart (326 mm) that a tick of difference is one of
 * these. So errors of the heading do not add up. 32 ticks are a millimetre.
 */
struct map_place {
	/* In 65536th parts of a mm. */
	int32_t x, y;
	/* The counters, and right less left at the start. */
	int32_t left, right, straight;
};

/* With these counters it is at (1200, 1200) mm, and looks along x. */
struct map_place map_start(int32_t left, int32_t right);
/* What a counter of 16 bits says, if it was `before`, and has moved by less than half a wrap. */
int32_t map_counted(int32_t before, uint16_t counter);
/*
 * Goes on to these counters: by a = both differences added, half a tick each, in the direction h
 * halfway between the two headings: the one before, plus (its change >> 1). x grows by
 * a cosine(h) >> 4, y by a sine(h) >> 4.
 */
void map_move(struct map_place *place, int32_t left, int32_t right);
uint32_t map_heading(const struct map_place *place);

/* --- The cells. --- */

struct map {
	/* Row by row, from y = 0; in a row from x = 0. */
	uint8_t *cells;
	uint32_t columns, rows;
	/* A ring of the cells of the last readings. */
	uint16_t *last;
	uint32_t most;
	/* How many readings there were. */
	uint32_t readings;
};

/* A cell that is none: of what lies outside. A map has fewer cells. */
enum { MAP_OUTSIDE = 0xffff };

/* No cell is occupied, and no reading counts. */
void map_clear(struct map *map);
/*
 * A sonar that looks to `angle`, from the heading on, hears something after `us`: (343 us + 1000) /
 * 2000 mm from the sonar, which is 200 mm from the robot's middle. With d the sum, it is at x =
 * (place.x >> 16) + (d cosine(heading + angle) >> 14), y likewise. The cell there counts one up, up
 * to 255. That of the reading `most` before counts one down, down to 0, and does so first. Readings
 * outside count as others, without a cell.
 */
void map_reading(struct map *map, const struct map_place *place, uint32_t angle, uint32_t us);
/*
 * Counts each cell one down whose middle is in front of the robot: up to 1500 mm ahead, and up to
 * 500 mm to a side, both included. With (a, b) from place >> 16 to the middle: ahead is
 * (a cosine(h) + b sine(h)) >> 14, to the left (b cosine(h) - a sine(h)) >> 14.
 */
void map_antisensor(struct map *map, const struct map_place *place);

/* --- The map as bytes. --- */

/*
 * Columns and rows, 16 bits each, the higher byte first; a cell's size in mm; then runs of equal
 * cells: the value, and how many there are, 7 bits a byte, the lowest first, bit 7 set in all but
 * the last. Each reading makes two runs more at most, of 4 bytes at most; a larger grid makes none.
 */
struct map_reader {
	const uint8_t *cells;
	uint32_t columns, rows;
	uint32_t next;
	/* What is to be given next. */
	uint8_t bytes[5];
	uint32_t given, ready;
};

void map_read(struct map_reader *reader, const uint8_t *cells, uint32_t columns, uint32_t rows);
/* `false`: that was all. */
bool map_next(struct map_reader *reader, uint8_t *byte);

#endif
