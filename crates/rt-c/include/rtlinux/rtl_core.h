// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Interrupts of devices (/dev/uioN) and soft interrupts. */
#ifndef ASMP_RTLINUX_RTL_CORE_H
#define ASMP_RTLINUX_RTL_CORE_H

#include <rtl.h>

#define rtl_request_global_irq(irq, handler) rtl_request_irq(irq, handler)
#define rtl_free_global_irq(irq) rtl_free_irq(irq)

#define RTL_NO_LOCAL "the interrupts of each CPU are Linux's: rtl_request_irq takes a device's"
#define rtl_request_local_irq(irq, handler, cpu) \
	((void)(irq), (void)(handler), (void)(cpu), \
	 rtl_refuse_np("rtl_request_local_irq", RTL_NO_LOCAL), 0)
#define rtl_free_local_irq(irq, cpu) \
	((void)(irq), (void)(cpu), rtl_refuse_np("rtl_free_local_irq", RTL_NO_LOCAL), 0)
#define rtl_irq_set_affinity(irq, cpus, old) \
	((void)(irq), (void)(cpus), (void)(old), \
	 rtl_refuse_np("rtl_irq_set_affinity", \
		       "a program does not move interrupts: asmp create --irq does"), \
	 0)

#endif
