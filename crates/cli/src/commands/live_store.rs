//! The store of a command that watches one while another process may write to it.

use trommel::{Db, Follower, Options};

use crate::commands::base::Base;
use crate::commands::store_args::{Session, StoreArgs};
use crate::failure::Failure;

/// The store that is watched.
pub(crate) enum LiveStore<'a> {
    /// That of the shell.
    Open(&'a Db),
    /// One that another process may write to.
    Followed(Follower),
}

impl<'a> LiveStore<'a> {
    /// The store of the session, or a follower of the one that `args` names.
    pub(crate) fn open(args: &StoreArgs, session: Session<'a>) -> Result<Self, Failure> {
        if let Some(db) = session.open {
            args.reject_db()?;
            return Ok(Self::Open(db));
        }
        let dir = args.dir()?;
        let options = Base::of(&dir, &Options::default()).options;
        Ok(Self::Followed(Db::open_follower(dir, options)?))
    }

    pub(crate) fn db(&self) -> &Db {
        match self {
            Self::Open(db) => db,
            Self::Followed(follower) => follower.db(),
        }
    }
}
