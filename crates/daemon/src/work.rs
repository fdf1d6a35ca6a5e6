// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the threads that answer leave to the thread that repairs, and why that may be refused.

use crate::written::Written;
use asmp_host::Schedule;
use asmp_host::peer::Peer;
use asmp_shield::{Grant, Refusal, Request, Spec};
use serde::{Deserialize, Serialize};

/// What the thread that repairs is to do for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    Run {
        peer: Peer,
        name: String,
        spec: Box<Spec>,
        /// Those that may cover it, in the order of the file. Which do, the shield knows.
        grants: Vec<Grant>,
        /// The highest that its tasks are to have.
        policy: Schedule,
        command: String,
    },
    Enter {
        peer: Peer,
        name: String,
        policy: Schedule,
        command: String,
    },
    End {
        peer: Peer,
        name: String,
    },
    /// Of root.
    Change {
        peer: Peer,
        request: Box<Request>,
        command: String,
    },
    /// The client is gone, and what it ran ends.
    Left,
    /// What root wrote to the tree of files.
    Written(Written),
}

/// The parameters of the error `Refused`: an exit code of asmp(8), and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub code: u8,
    pub why: String,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { code: refusal.code(), why: refusal.to_string() }
    }
}
