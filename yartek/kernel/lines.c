/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Deferred interrupts: a handler raises a line, and the line's service runs in the background.
 *
 * Problem:  no raise may be lost or served twice, whichever instruction the handler interrupts,
 *           and nothing is masked meanwhile. A source that storms must not eat the CPU.
 * Approach: two counts for each question, one of the handlers and one of the background. The
 *           question is answered by their difference: raises not served yet (raised - served), is
 *           the line in the queue (queued != taken), is its source masked (masked != unmasked).
 */
#include "port.h"

/* The lines that were raised, in that order. A line is in it once at most, so there is room. */
static volatile uint8_t queue[YK_MAX_LINES];
/* Of handlers; of the background. They wrap. */
static volatile uint32_t queue_in;
static volatile uint32_t queue_out;

void yk_raise(uint32_t n)
{
	struct yk_line *line = &yk_table.lines[n];
	uint32_t most = yk_table.line_defs[n].most;
	uint32_t raised = line->raised + 1;

	line->raised = raised;
	if (line->queued == line->taken) {
		uint32_t in = queue_in;

		queue[in % YK_MAX_LINES] = (uint8_t)n;
		line->queued++;
		queue_in = in + 1;
	}
	if (most && raised - line->served >= most) {
		line->masked++;
		yk_port_mask(n);
	}
	yk_port_wake();
}

bool yk_serve(void)
{
	uint32_t out = queue_out, n, raised, raises;
	struct yk_line *line;

	if (out == queue_in)
		return false;
	n = queue[out % YK_MAX_LINES];
	line = &yk_table.lines[n];
	queue_out = out + 1;
	/* From here on the handler queues it anew. */
	line->taken++;
	raised = line->raised;
	raises = raised - line->served;
	line->served = raised;
	/* 0: the service before was told of the raises that came just before it. */
	if (raises)
		yk_table.line_defs[n].service(raises);
	/*
	 * Masked: the handler does not run. If too many raises came during the service, the line is
	 * in the queue, and its next service unmasks.
	 */
	if (line->masked != line->unmasked &&
	    line->raised - line->served < yk_table.line_defs[n].most) {
		line->unmasked = line->masked;
		yk_port_unmask(n);
	}
	return true;
}
