//! How the filters of new tables are laid out, what they hold, and where they are in memory.

use std::sync::Arc;

use trommel_sstable::FilterShape;

use crate::error::{Error, Result};
use crate::filter_policy::FilterPolicy;
use crate::options::choices::FilterResidency;
use crate::options::table::settings;
use crate::prefix::Prefix;
use crate::user_filters::{UserFilterPolicy, UserPolicy};

settings! {
    /// How filters are laid out, what they hold, and where they are in memory: see
    /// [`Options::filtering`](crate::Options::filtering).
    FilterSettings {
        /// How the filters of new tables are divided. [`FilterShape::Partitioned`]: into one for
        /// each range of keys, so that only those in use need memory.
        filter_shape: FilterShape = FilterShape::Whole;
        /// About how many bytes a partition of a filter has; it ends where a data block ends.
        filter_partition_bytes: usize = 32 << 10, 256..=16 << 20;
        /// A policy that chooses the filter of each table, and may bring filters of its own. It is
        /// given what [`filters`](crate::Options::filters) specifies for the table, and has the
        /// last word; it is not called for tables that get no filter because of
        /// [`filters_on_last_level`](Self::filters_on_last_level). Tables with its filters can be
        /// read without it. It cannot change while the store is open:
        /// [`Db::set_options`](crate::Db::set_options) refuses another one.
        user_filters(Arc<dyn UserFilterPolicy> => UserPolicy::chosen):
            Option<UserPolicy> = None;
        /// Whether the tables of the last level have filters. Without, none are built for them, and
        /// those built while a table was in a higher level are neither held in memory nor probed
        /// until a deeper level appears. For stores whose lookups nearly all hit: a key that is
        /// missing then costs about one read in the last level.
        filters_on_last_level: bool = true;
        /// Where filters are in memory.
        filter_residency: FilterResidency = FilterResidency::Pinned;
        /// Most bytes of filters that are pinned, where they are pinned at all. Filters that are
        /// read once the limit is reached go to the block cache. `None`: no limit; but under a
        /// [`memory_limit`](crate::Options::memory_limit) pinned filters and indexes together take
        /// at most half of it.
        pinned_filter_bytes: Option<u64> = None;
        /// The prefix of a key, or `None`. Tables get a filter of the prefixes of their keys beside
        /// that of whole keys, and reads within one prefix ([`Db::prefix`](crate::Db::prefix), a
        /// range or a bounded cursor that lies within it) skip tables that do not hold it. Keys
        /// without a prefix are not in the filter, and no read that could be looking for them
        /// probes it.
        ///
        /// Existing tables keep the filters they have. Those that another extractor made are not
        /// used, and counted ([`PrefixStats::unused`](crate::PrefixStats::unused)). Where no
        /// extractor is set, a table's own is used if it is one of the built-in rules.
        prefix_extractor(impl Into<Option<Prefix>> => Into::into): Option<Prefix> = None;
        /// Which filter of prefixes the tables of each level get, bits being counted for each
        /// prefix. `None`: as [`filters`](crate::Options::filters) specifies.
        prefix_filters(impl Into<Option<FilterPolicy>> => Into::into): Option<FilterPolicy> = None;
        /// Whether tables get filters of whole keys. Without them point lookups probe those of
        /// prefixes, so there must be a [`prefix_extractor`](Self::prefix_extractor).
        whole_key_filters: bool = true;
    }
}

impl FilterSettings {
    /// Checks what the settings demand of each other.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(prefix) = &self.prefix_extractor {
            prefix.check()?;
        } else if !self.whole_key_filters {
            return Err(Error::option(
                "whole_key_filters is false, and there is no prefix_extractor: set one, or set \
                 filters to none if there are to be no filters",
            ));
        }
        if self.prefix_filters.as_ref().is_some_and(|filters| filters.budget().is_some()) {
            return Err(Error::option(
                "prefix_filters is a budget: there is one for all filters, that of filters, so give \
                 the budget there, and prefix_filters a filter or nothing",
            ));
        }
        self.user_filters.as_ref().map_or(Ok(()), UserPolicy::check)
    }
}
