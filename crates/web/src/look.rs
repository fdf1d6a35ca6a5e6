// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the machine once a second for all who watch, and not at all while there are none.

use crate::machine::{Machine, Seen};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

const PERIOD: Duration = Duration::from_secs(1);
/// After so long it is told that the machine is not read.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is sent to those who watch, as JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Told {
    Seen(Box<Seen>),
    /// It cannot be read now.
    Failed(String),
}

/// The last look; empty before the first one.
pub type Last = watch::Receiver<Arc<str>>;

/// Where those who watch come.
#[derive(Clone)]
pub struct Looks {
    last: watch::Sender<Arc<str>>,
    came: Arc<Notify>,
}

impl Looks {
    /// Starts the reader, a task of this runtime.
    pub fn start(machine: Arc<dyn Machine>) -> Self {
        let (last, _) = watch::channel(Arc::from(""));
        let looks = Self { last, came: Arc::default() };
        tokio::spawn(looks.clone().read(machine));
        looks
    }

    /// Looks from now on, until it is dropped.
    pub fn watch(&self) -> Last {
        let mut last = self.last.subscribe();
        // What was seen before the pause is old.
        last.mark_unchanged();
        self.came.notify_one();
        last
    }

    async fn read(self, machine: Arc<dyn Machine>) {
        loop {
            while self.last.receiver_count() == 0 {
                self.came.notified().await;
            }
            let own = Arc::clone(&machine);
            let mut read = tokio::task::spawn_blocking(move || own.seen());
            let read = loop {
                match tokio::time::timeout(PATIENCE, &mut read).await {
                    Ok(read) => break read,
                    // No second one is begun meanwhile.
                    Err(_) => self.tell(&Told::Failed("it takes longer than 5 s".to_owned())),
                }
            };
            self.tell(&match read {
                Ok(Ok(seen)) => Told::Seen(Box::new(seen)),
                Ok(Err(why)) => Told::Failed(why),
                Err(_) => Told::Failed("the reader has failed".to_owned()),
            });
            tokio::time::sleep(PERIOD).await;
        }
    }

    fn tell(&self, told: &Told) {
        let json = serde_json::to_string(told).unwrap_or_default();
        self.last.send_replace(json.into());
    }
}
