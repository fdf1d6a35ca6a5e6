// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The errors of channels as Python exceptions, defined in python/asmp_rt/_errors.py.

use asmp_channel::{MbuffError, OfferError, RingError, ShmError};
use pyo3::PyErr;

mod raised {
    use pyo3::import_exception;
    import_exception!(asmp_rt._errors, BadName);
    import_exception!(asmp_rt._errors, BadRecord);
    import_exception!(asmp_rt._errors, BadSize);
    import_exception!(asmp_rt._errors, Cancelled);
    import_exception!(asmp_rt._errors, ChannelIO);
    import_exception!(asmp_rt._errors, Closed);
    import_exception!(asmp_rt._errors, Corrupt);
    import_exception!(asmp_rt._errors, ForeignDirectory);
    import_exception!(asmp_rt._errors, HiddenChannel);
    import_exception!(asmp_rt._errors, InUse);
    import_exception!(asmp_rt._errors, Mismatch);
    import_exception!(asmp_rt._errors, NameTaken);
    import_exception!(asmp_rt._errors, NoRoom);
    import_exception!(asmp_rt._errors, NoSuchChannel);
    import_exception!(asmp_rt._errors, NotPermitted);
    import_exception!(asmp_rt._errors, Overtaken);
    import_exception!(asmp_rt._errors, PeerGone);
    import_exception!(asmp_rt._errors, RoleTaken);
    import_exception!(asmp_rt._errors, TimedOut);
}
pub use raised::*;

pub fn shm(error: ShmError) -> PyErr {
    let line = error.to_string();
    match error {
        ShmError::BadName { .. } => BadName::new_err(line),
        ShmError::NameTaken { .. } => NameTaken::new_err(line),
        ShmError::NotFound { .. } => NoSuchChannel::new_err(line),
        ShmError::BadSize { .. } => BadSize::new_err(line),
        ShmError::NoRoom { .. } => NoRoom::new_err(line),
        ShmError::Mismatch { .. } => Mismatch::new_err(line),
        ShmError::RoleTaken { .. } => RoleTaken::new_err(line),
        ShmError::ForeignDir { .. } => ForeignDirectory::new_err(line),
        ShmError::ReadOnly { .. } => NotPermitted::new_err(line),
        ShmError::Hidden { .. } => HiddenChannel::new_err(line),
        ShmError::NoDir { .. } | ShmError::DirLocked { .. } | ShmError::Io { .. } => {
            ChannelIO::new_err(line)
        }
    }
}

pub fn mbuff(error: MbuffError) -> PyErr {
    match error {
        MbuffError::Shm(error) => shm(error),
        MbuffError::SizeMismatch { .. } | MbuffError::ViewMismatch { .. } => {
            Mismatch::new_err(error.to_string())
        }
        MbuffError::OutOfBounds { .. } => BadRecord::new_err(error.to_string()),
    }
}

pub fn offer(error: OfferError) -> PyErr {
    let line = error.to_string();
    match error {
        OfferError::BadPath { .. } => BadName::new_err(line),
        OfferError::ForeignDir { .. } => ForeignDirectory::new_err(line),
        OfferError::NotASocket { .. } | OfferError::InUse { .. } | OfferError::NameKept { .. } => {
            NameTaken::new_err(line)
        }
        OfferError::NoRole { .. }
        | OfferError::BothWrite { .. }
        | OfferError::HugePages { .. }
        | OfferError::NotKept { .. }
        | OfferError::BadMessage { .. } => Mismatch::new_err(line),
        OfferError::TimedOut { .. } => TimedOut::new_err(line),
        OfferError::Ended { .. } => Closed::new_err(line),
        OfferError::NotFound { .. } => NoSuchChannel::new_err(line),
        OfferError::WrongOwner { .. } | OfferError::NotForUs { .. } => NotPermitted::new_err(line),
        OfferError::Shm(error) => shm(error),
        OfferError::NoKeeper { .. }
        | OfferError::TooMany
        | OfferError::TooManyReaders { .. }
        | OfferError::Busy { .. }
        | OfferError::Io { .. } => ChannelIO::new_err(line),
    }
}

/// The exception for a failed put or get. Callers handle `Full` and `BadLength` themselves.
pub fn ring(error: RingError) -> PyErr {
    match error {
        RingError::Corrupt => Corrupt::new_err(error.to_string()),
        RingError::Overtaken => Overtaken::new_err(error.to_string()),
        RingError::Full | RingError::BadLength => BadRecord::new_err(error.to_string()),
    }
}

pub fn overtaken(error: asmp_channel::Overtaken) -> PyErr {
    Overtaken::new_err(error.to_string())
}

pub fn closed(what: &str, name: &str) -> PyErr {
    Closed::new_err(format!("{what} {name} is closed"))
}
