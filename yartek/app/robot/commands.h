/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The commands of the paper over the serial line: clear, compute, send. A command is a frame of
 * link.h. The answer is a frame that begins with the same bytes. Either may be lost: the other end
 * waits for a while, and asks again. While a clear or a compute is done, others have no answer.
 */
#ifndef ROBOT_COMMANDS_H
#define ROBOT_COMMANDS_H

#include <stdbool.h>
#include <stdint.h>

enum {
	/* Empties the map. Answered once that is done. */
	COMMAND_CLEAR = 'k',
	/* Keeps the map as it is. Answered once that is done. */
	COMMAND_COMPUTE = 'c',
	/*
	 * 's', number of a piece, the higher byte first. The answer goes on with up to
	 * COMMAND_PIECE bytes of the map that was kept; the last piece has fewer.
	 */
	COMMAND_SEND = 's',
	/* The answer to anything else. */
	COMMAND_UNKNOWN = '?',
	COMMAND_PIECE = 60
};

/* For the background: obeys a command, if one has come. `false`: none has. */
bool commands_serve(void);
/* Has any come? */
bool commands_came(void);

#endif
