//! The options of a store. No option is fixed in the directory: every one may differ at the next
//! open, and those that [`Db::set_options`](crate::Db::set_options) accepts may change on an open
//! store. The options that shape a store are recorded in its directory, for programs that start
//! from them (module [`options_file`](crate::options_file)).
//!
//! A setting is one entry in the table of its group ([`table`]); everything else here follows from
//! these entries.
//!
//! * [`opening`], [`writes`], [`filtering`], [`compaction`], [`reads`]: the groups.
//! * [`choices`]: the types of settings with a few named values.
//! * [`text`]: settings as text, and back.
//! * [`derived`]: values that the engine computes from several settings.

mod choices;
mod compaction;
mod derived;
mod filtering;
mod opening;
mod reads;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod writes;

use std::sync::Arc;

use trommel_vfs::{DiskVfs, Vfs};

pub use self::choices::{Degraded, Durability, FilterResidency, WriteOptions};
pub use self::compaction::CompactionSettings;
pub use self::filtering::FilterSettings;
pub use self::opening::OpenSettings;
pub use self::reads::ReadSettings;
use self::table::settings;
pub use self::writes::WriteSettings;
pub(crate) use self::writes::check_ttl;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::filter_policy::FilterPolicy;

pub use trommel_sstable::{Compression, FilterShape};

settings! {
    /// The options of a store: a builder in which every setting has a default. The settings that
    /// most programs change are methods of it; closures change the others, in five groups.
    ///
    /// ```
    /// use trommel::{Durability, Options};
    /// let options = Options::default()
    ///     .filters("L0=paired:20,L1-=blocked:12.5".parse()?)
    ///     .durability(Durability::Sync)
    ///     .reads(|r| r.cache_bytes(256 << 20))
    ///     .compaction(|c| c.level_ratio(8).l0_trigger(8));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    Options {
        /// How durable a write is when it returns; [`WriteOptions`](crate::WriteOptions) overrides
        /// it for one write.
        durability: Durability = Durability::Os;
        /// The filters of each level's tables, or a budget for all of them: by default
        /// `L0=paired:16,L1-=paired:12`.
        filters: FilterPolicy = FilterPolicy::default();
        /// Compression of data blocks.
        compression: Compression = Compression::Lz4;
        /// One limit, in bytes, on memtables, block cache, index and filters together: the cache
        /// gets what the others leave free.
        memory_limit(u64 => Some): Option<u64> = None, 64 << 10..;
        /// Maximum number of threads that flush memtables and compact. They are started when there
        /// is work, and end when there is none. With 0, the call that makes such work necessary
        /// does the work itself.
        background_threads: usize = 2, 0..=256;
    }
    beside {
        vfs: Arc<dyn Vfs> = Arc::new(DiskVfs);
        environment: Option<Environment> = None;
        opening: OpenSettings = OpenSettings::default();
        writes: WriteSettings = WriteSettings::default();
        filtering: FilterSettings = FilterSettings::default();
        compaction: CompactionSettings = CompactionSettings::default();
        reads: ReadSettings = ReadSettings::default();
    }
}

macro_rules! groups {
    ($($(#[$doc:meta])* $name:ident: $group:ident;)*) => {
        impl Options {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $name(mut self, change: impl FnOnce($group) -> $group) -> Self {
                    self.$name = change(self.$name);
                    self
                }
            )*

            /// Returns the name and the value, as text, of every setting except the file system and
            /// the environment. The name is that of the setter; sizes are in bytes. A default that
            /// depends on the machine is returned as it is on this one.
            ///
            /// ```
            /// let options = trommel::Options::default().compaction(|c| c.level_ratio(8));
            /// assert!(options.settings().contains(&("level_ratio", "8".to_owned())));
            /// ```
            pub fn settings(&self) -> Vec<(&'static str, String)> {
                let mut all = Vec::new();
                self.list(&mut all);
                $(self.$name.list(&mut all);)*
                all
            }

            /// Sets the setting `name`, of any group, to the value `text`, both in the form that
            /// [`settings`](Self::settings) returns.
            ///
            /// ```
            /// let options = trommel::Options::default().set("level_ratio", "8")?;
            /// assert!(options.settings().contains(&("level_ratio", "8".to_owned())));
            /// # Ok::<(), trommel::Error>(())
            /// ```
            ///
            /// # Errors
            /// [`Error::InvalidOption`] if no setting has this name, or if `text` is not a value of
            /// it. Bounds are checked when the store is opened.
            pub fn set(mut self, name: &str, text: &str) -> Result<Self> {
                match self.parse_any(name, text) {
                    Some(Ok(())) => Ok(self),
                    Some(Err(why)) => Err(Error::option(why)),
                    None => Err(Error::option(format!("there is no option {name}"))),
                }
            }

            /// As [`set`](Self::set), in place; `None` if no setting has this name.
            pub(crate) fn parse_any(
                &mut self,
                name: &str,
                text: &str,
            ) -> Option<std::result::Result<(), String>> {
                let parsed = self.parse(name, text);
                $(let parsed = parsed.or_else(|| self.$name.parse(name, text));)*
                parsed
            }

            /// Checks every bound in the tables, and the constraints between settings.
            pub(crate) fn check(&self) -> Result<()> {
                self.check_bounds()?;
                $(self.$name.check_bounds()?;)*
                self.writes.check()?;
                self.filtering.check()?;
                self.compaction.check()
            }
        }
    };
}

groups! {
    /// Changes how a directory is opened: what it may hold, and whether anything is written.
    ///
    /// ```
    /// let options = trommel::Options::default().opening(|o| o.create_if_missing(false));
    /// # let dir = tempfile::tempdir().unwrap();
    /// assert!(trommel::Db::open(dir.path(), options).is_err());
    /// ```
    opening: OpenSettings;
    /// Changes how writes are logged, buffered and stalled.
    ///
    /// ```
    /// let options = trommel::Options::default().writes(|w| w.write_buffer_bytes(16 << 20));
    /// ```
    writes: WriteSettings;
    /// Changes the layout of filters, what they contain, and where they are held in memory.
    ///
    /// ```
    /// use trommel::{Options, Prefix};
    /// let extractor: Prefix = "until:/".parse()?;
    /// let options = Options::default().filtering(|f| f.prefix_extractor(extractor));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    filtering: FilterSettings;
    /// Changes the shape of the tree, and when it is compacted.
    ///
    /// ```
    /// let options = trommel::Options::default().compaction(|c| c.level_ratio(8).l0_trigger(8));
    /// ```
    compaction: CompactionSettings;
    /// Changes how blocks are laid out, read and cached.
    ///
    /// ```
    /// let options = trommel::Options::default().reads(|r| r.cache_bytes(256 << 20));
    /// ```
    reads: ReadSettings;
}

impl Options {
    /// The file system that holds the store. Default: the disk.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use trommel::{Db, Options, vfs::DiskVfs};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Db::open(dir.path(), Options::default().vfs(Arc::new(DiskVfs)))?;
    /// # Ok::<(), trommel::Error>(())
    /// ```
    #[must_use]
    pub fn vfs(mut self, vfs: Arc<dyn Vfs>) -> Self {
        self.vfs = vfs;
        self
    }

    /// The resources that the store shares with other stores of the process: threads, the block
    /// cache, one memory limit, and the number of open tables. The settings of the environment then
    /// apply, and [`cache_bytes`](ReadSettings::cache_bytes),
    /// [`memory_limit`](Self::memory_limit) and [`max_open_files`](ReadSettings::max_open_files) of
    /// the store do not; [`background_threads`](Self::background_threads) is the maximum number of
    /// the environment's threads that work for the store at once. Default: none.
    ///
    /// ```
    /// use trommel::{Db, Environment, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let environment = Environment::builder().threads(2).build()?;
    /// let options = Options::default().environment(&environment);
    /// let cats = Db::open(dir.path().join("cats"), options.clone())?;
    /// let dogs = Db::open(dir.path().join("dogs"), options)?;
    /// # cats.put("a", "b")?;
    /// # dogs.put("a", "b")?;
    /// # Ok::<(), trommel::Error>(())
    /// ```
    #[must_use]
    pub fn environment(mut self, environment: &Environment) -> Self {
        self.environment = Some(environment.clone());
        self
    }
}
