// SPDX-License-Identifier: Apache-2.0 OR MIT
/* What two processes can do at best with two flags or two futexes, and the usual ring of slots. */
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
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

#define SLOTS 1024u

struct ring {
    _Alignas(64) _Atomic uint64_t put;
    _Alignas(64) _Atomic uint64_t got;
    _Alignas(64) unsigned char slots[SLOTS][64];
};

/* Each end keeps its own counter, and what it last saw of the other's. */
struct end {
    struct ring *ring;
    uint64_t mine, seen;
};

void ring_new(struct end *end, void *memory)
{
    *end = (struct end){ .ring = memory };
}

int ring_put(struct end *end, const void *record)
{
    struct ring *ring = end->ring;
    if (end->mine - end->seen == SLOTS) {
        end->seen = atomic_load_explicit(&ring->got, memory_order_acquire);
        if (end->mine - end->seen == SLOTS)
            return 0;
    }
    memcpy(ring->slots[end->mine++ % SLOTS], record, 64);
    atomic_store_explicit(&ring->put, end->mine, memory_order_release);
    return 1;
}

int ring_get(struct end *end, void *record)
{
    struct ring *ring = end->ring;
    if (end->mine == end->seen) {
        end->seen = atomic_load_explicit(&ring->put, memory_order_acquire);
        if (end->mine == end->seen)
            return 0;
    }
    memcpy(record, ring->slots[end->mine++ % SLOTS], 64);
    atomic_store_explicit(&ring->got, end->mine, memory_order_release);
    return 1;
}
