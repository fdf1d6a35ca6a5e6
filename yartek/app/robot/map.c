/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Problem:  a map that forgets: what moved away must go from it, and what was read wrongly.
 * Approach: a histogram grid (Borenstein, Koren 1991), as Yartek's: only the last readings count,
 *           and cells in front of the robot lose one from time to time. A reading is kept as its
 *           cell, so that it is taken back where it was added.
 */
#include "map.h"

#include "sine.h"

enum {
	SONAR_AT_MM = 200,
	/* Sound goes 343 mm a millisecond, there and back. */
	SOUND_MM_NUM = 343,
	ECHO_US_NUM = 2000,
	AHEAD_MM = 1500,
	ASIDE_MM = 500,
	/* The farthest corner of what is in front. */
	AROUND_MM = 1600,
	MOST_COUNT = 255
};

struct map_place map_start(int32_t left, int32_t right)
{
	return (struct map_place){ 1200 << 16, 1200 << 16, left, right, right - left };
}

int32_t map_counted(int32_t before, uint16_t counter)
{
	return before + (int16_t)(uint16_t)(counter - (uint16_t)before);
}

uint32_t map_heading(const struct map_place *place)
{
	return (uint32_t)(place->right - place->left - place->straight);
}

void map_move(struct map_place *place, int32_t left, int32_t right)
{
	int32_t by_left = left - place->left, by_right = right - place->right;
	uint32_t halfway = map_heading(place) + (uint32_t)((by_right - by_left) >> 1);

	place->x += (by_left + by_right) * cosine(halfway) >> 4;
	place->y += (by_left + by_right) * sine(halfway) >> 4;
	place->left = left;
	place->right = right;
}

void map_clear(struct map *map)
{
	for (uint32_t cell = 0; cell < map->columns * map->rows; cell++)
		map->cells[cell] = 0;
	map->readings = 0;
}

static uint16_t cell_at(const struct map *map, int32_t x, int32_t y)
{
	uint32_t column, row;

	if (x < 0 || y < 0)
		return MAP_OUTSIDE;
	column = (uint32_t)x / MAP_CELL_MM;
	row = (uint32_t)y / MAP_CELL_MM;
	if (column >= map->columns || row >= map->rows)
		return MAP_OUTSIDE;
	return (uint16_t)(row * map->columns + column);
}

static void count_down(struct map *map, uint32_t cell)
{
	if (map->cells[cell])
		map->cells[cell]--;
}

void map_reading(struct map *map, const struct map_place *place, uint32_t angle, uint32_t us)
{
	uint32_t direction = map_heading(place) + angle;
	int32_t mm = (int32_t)((us * SOUND_MM_NUM + ECHO_US_NUM / 2) / ECHO_US_NUM) + SONAR_AT_MM;
	uint16_t cell = cell_at(map, (place->x >> 16) + (mm * cosine(direction) >> 14),
				(place->y >> 16) + (mm * sine(direction) >> 14));
	uint16_t *slot = &map->last[map->readings % map->most];

	if (map->readings >= map->most && *slot != MAP_OUTSIDE)
		count_down(map, *slot);
	*slot = cell;
	/* It wraps after decades, and stays full. */
	if (++map->readings == 2 * map->most)
		map->readings = map->most;
	if (cell != MAP_OUTSIDE && map->cells[cell] < MOST_COUNT)
		map->cells[cell]++;
}

/* The cells from `low` up to, and without, `high`, of so many, that can be within reach. */
struct span {
	uint32_t low, high;
};

static struct span around(int32_t middle, uint32_t count)
{
	int32_t low = middle - AROUND_MM, high = middle + AROUND_MM;
	struct span span = { 0, 0 };

	if (low > 0)
		span.low = (uint32_t)low / MAP_CELL_MM;
	if (high > 0)
		span.high = (uint32_t)high / MAP_CELL_MM + 1;
	span.high = span.high < count ? span.high : count;
	return span;
}

void map_antisensor(struct map *map, const struct map_place *place)
{
	int32_t x = place->x >> 16, y = place->y >> 16;
	int32_t along = cosine(map_heading(place)), up = sine(map_heading(place));
	struct span columns = around(x, map->columns), rows = around(y, map->rows);

	for (uint32_t row = rows.low; row < rows.high; row++) {
		int32_t b = (int32_t)(row * MAP_CELL_MM + MAP_CELL_MM / 2) - y;

		for (uint32_t column = columns.low; column < columns.high; column++) {
			int32_t a = (int32_t)(column * MAP_CELL_MM + MAP_CELL_MM / 2) - x;
			int32_t ahead = (a * along + b * up) >> 14;
			int32_t left = (b * along - a * up) >> 14;

			if (ahead >= 0 && ahead <= AHEAD_MM && left >= -ASIDE_MM && left <= ASIDE_MM)
				count_down(map, row * map->columns + column);
		}
	}
}

void map_read(struct map_reader *reader, const uint8_t *cells, uint32_t columns, uint32_t rows)
{
	*reader = (struct map_reader){
		.cells = cells,
		.columns = columns,
		.rows = rows,
		.bytes = { (uint8_t)(columns >> 8), (uint8_t)columns, (uint8_t)(rows >> 8),
			   (uint8_t)rows, MAP_CELL_MM },
		.ready = 5,
	};
}

/* Makes the bytes of the next run. */
static void next_run(struct map_reader *reader)
{
	uint32_t cells = reader->columns * reader->rows;
	uint32_t from = reader->next, count;
	uint8_t value = reader->cells[from];

	while (reader->next < cells && reader->cells[reader->next] == value)
		reader->next++;
	reader->bytes[0] = value;
	reader->ready = 1;
	for (count = reader->next - from; count >= 128; count >>= 7)
		reader->bytes[reader->ready++] = (uint8_t)(count | 128);
	reader->bytes[reader->ready++] = (uint8_t)count;
	reader->given = 0;
}

bool map_next(struct map_reader *reader, uint8_t *byte)
{
	if (reader->given == reader->ready) {
		if (reader->next == reader->columns * reader->rows)
			return false;
		next_run(reader);
	}
	*byte = reader->bytes[reader->given++];
	return true;
}
