// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The limits: what two processes can do at best with two flags, or with two futexes. */
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

struct flags {
    _Alignas(64) _Atomic uint32_t ping;
    _Alignas(64) _Atomic uint32_t pong;
};

void flags_ping(struct flags *f, uint32_t rounds)
{
    for (uint32_t i = 1; i <= rounds; i++) {
        atomic_store_explicit(&f->ping, i, memory_order_release);
        while (atomic_load_explicit(&f->pong, memory_order_acquire) != i)
            __builtin_ia32_pause();
    }
}

void flags_pong(struct flags *f, uint32_t rounds)
{
    for (uint32_t i = 1; i <= rounds; i++) {
        while (atomic_load_explicit(&f->ping, memory_order_acquire) != i)
            __builtin_ia32_pause();
        atomic_store_explicit(&f->pong, i, memory_order_release);
    }
}

static void post(_Atomic uint32_t *word, uint32_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
    syscall(SYS_futex, word, FUTEX_WAKE, 1);
}

static void await(_Atomic uint32_t *word, uint32_t value)
{
    uint32_t now;
    while ((now = atomic_load_explicit(word, memory_order_acquire)) != value)
        syscall(SYS_futex, word, FUTEX_WAIT, now, 0);
}

void futex_ping(struct flags *f, uint32_t rounds)
{
    for (uint32_t i = 1; i <= rounds; i++) {
        post(&f->ping, i);
        await(&f->pong, i);
    }
}

void futex_pong(struct flags *f, uint32_t rounds)
{
    for (uint32_t i = 1; i <= rounds; i++) {
        await(&f->ping, i);
        post(&f->pong, i);
    }
}
