/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The walls of three rooms in a row, with doors of 1.2 m: WALL(x, y, x, y), in mm. A wall is a
 * line. x goes to the right, y up. What draws the rooms reads this file, too: a line a wall.
 */
/* Around all of it. */
WALL(400, 400, 12400, 400)
WALL(12400, 400, 12400, 6000)
WALL(12400, 6000, 400, 6000)
WALL(400, 6000, 400, 400)
/* Between the first and the second. */
WALL(4400, 400, 4400, 2600)
WALL(4400, 3800, 4400, 6000)
/* Between the second and the third. */
WALL(8400, 400, 8400, 2600)
WALL(8400, 3800, 8400, 6000)
/* A table in the first. */
WALL(1900, 2800, 2700, 2800)
WALL(2700, 2800, 2700, 3700)
WALL(2700, 3700, 1900, 3700)
WALL(1900, 3700, 1900, 2800)
/* A pillar in the second, put up across. */
WALL(6400, 2700, 6900, 3200)
WALL(6900, 3200, 6400, 3700)
WALL(6400, 3700, 5900, 3200)
WALL(5900, 3200, 6400, 2700)
/* A cupboard and a cut corner in the third. */
WALL(10800, 400, 10800, 1200)
WALL(10800, 1200, 12400, 1200)
WALL(11200, 6000, 12400, 4800)
