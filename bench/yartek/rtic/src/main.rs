// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RTIC 2: an interrupt's work in a software task of its own priority, and a periodic task.
#![no_std]
#![no_main]

mod device;
mod measure;

use cortex_m_rt as _;
use rtic_monotonics::systick::prelude::*;

systick_monotonic!(Mono, 1_000);
const TICK: u32 = 25_000_000 / 1_000;

#[panic_handler]
fn panicked(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[rtic::app(device = crate::device, peripherals = false, dispatchers = [Free1, Free2])]
mod app {
    use crate::measure::{
        ROUND_MS, acknowledge, begin_round, dual_value, keep, since, start, systick_value, trigger,
    };
    use crate::{Mono, TICK};
    use rtic_monotonics::systick::prelude::*;

    #[shared]
    struct Shared {}

    #[local]
    struct Local {}

    #[init]
    fn init(cx: init::Context) -> (Shared, Local) {
        Mono::start(cx.core.SYST, 25_000_000);
        // The first of its kind: there is room.
        let _ = periodic::spawn();
        start();
        (Shared {}, Local {})
    }

    #[idle]
    fn idle(_: idle::Context) -> ! {
        loop {
            if !trigger() {
                cortex_m::asm::wfi();
            }
        }
    }

    #[task(binds = Dual, priority = 3)]
    fn interrupted(_: interrupted::Context) {
        acknowledge();
        // Refused while the task has not ended.
        let _ = deferred::spawn();
    }

    #[task(priority = 2)]
    async fn deferred(_: deferred::Context) {
        let now = dual_value();
        keep(since(now));
    }

    #[task(priority = 1)]
    async fn periodic(_: periodic::Context) {
        let mut next = Mono::now();
        loop {
            next += ROUND_MS.millis();
            Mono::delay_until(next).await;
            let now = systick_value();
            // It counts down from there, and has interrupted at 0.
            begin_round(TICK - 1 - now);
        }
    }

    #[cfg(not(feature = "small"))]
    #[task(binds = Watched, priority = 3)]
    fn watched(_: watched::Context) {
        let now = dual_value();
        keep(since(now));
    }
}
