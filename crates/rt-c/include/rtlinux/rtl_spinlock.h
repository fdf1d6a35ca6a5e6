// SPDX-License-Identifier: Apache-2.0 OR MIT
/* RTLinux's spin locks are mutexes with priority inheritance. A thread that spun for one of lower
 * priority on its own CPU would spin for ever. Handlers of interrupts are threads here, so a mutex
 * keeps them out too. Interrupts stay on. */
#ifndef ASMP_RTLINUX_RTL_SPINLOCK_H
#define ASMP_RTLINUX_RTL_SPINLOCK_H

#include <pthread.h>

#include "../asmp_rt.h"

typedef pthread_mutex_t rtl_spinlock_t;
typedef unsigned long rtl_irqstate_t;

/* Without priority inheritance: rtl_spin_lock_init gives it. */
#define RTL_SPIN_LOCK_UNLOCKED PTHREAD_MUTEX_INITIALIZER
#ifndef SPIN_LOCK_UNLOCKED
#define SPIN_LOCK_UNLOCKED PTHREAD_MUTEX_INITIALIZER
#define spinlock_t rtl_spinlock_t
#endif

static inline int rtl_spin_lock_init(rtl_spinlock_t *lock)
{
	pthread_mutexattr_t inherits;
	int error;

	pthread_mutexattr_init(&inherits);
	pthread_mutexattr_setprotocol(&inherits, PTHREAD_PRIO_INHERIT);
	error = pthread_mutex_init(lock, &inherits);
	pthread_mutexattr_destroy(&inherits);
	return error;
}

#define rtl_spin_lock(lock) pthread_mutex_lock(lock)
#define rtl_spin_trylock(lock) pthread_mutex_trylock(lock)
#define rtl_spin_unlock(lock) pthread_mutex_unlock(lock)
#define rtl_spin_lock_irqsave(lock, flags) ((flags) = 0, (void)pthread_mutex_lock(lock))
#define rtl_spin_unlock_irqrestore(lock, flags) ((void)(flags), (void)pthread_mutex_unlock(lock))

#define pthread_spinlock_t rtl_spinlock_t
#define pthread_spin_init(lock, shared) ((void)(shared), rtl_spin_lock_init(lock))
#define pthread_spin_destroy(lock) pthread_mutex_destroy(lock)
#define pthread_spin_lock(lock) pthread_mutex_lock(lock)
#define pthread_spin_trylock(lock) pthread_mutex_trylock(lock)
#define pthread_spin_unlock(lock) pthread_mutex_unlock(lock)

#endif
