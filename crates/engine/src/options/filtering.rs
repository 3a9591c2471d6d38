//! The layout of filters, what they contain, and where they are held in memory.

use std::sync::Arc;

use trommel_sstable::FilterShape;

use crate::error::{Error, Result};
use crate::filter_policy::FilterPolicy;
use crate::options::choices::FilterResidency;
use crate::options::table::settings;
use crate::prefix::Prefix;
use crate::user_filters::{UserFilterPolicy, UserPolicy};

settings! {
    /// The layout of filters, what they contain, and where they are held in memory: see
    /// [`Options::filtering`](crate::Options::filtering).
    FilterSettings {
        /// How the filters of new tables are partitioned. [`FilterShape::Partitioned`]: one for
        /// each key range, so that only those in use need memory.
        filter_shape: FilterShape = FilterShape::Whole;
        /// Approximate size of a filter partition, in bytes. Each partition ends where a data block
        /// ends.
        filter_partition_bytes: usize = 32 << 10, 256..=16 << 20;
        /// A policy that chooses the filter of each table: one of the store's, none, or one that it
        /// builds itself. It receives the filter that [`filters`](crate::Options::filters) sets for
        /// the table, and its choice takes precedence. It is not called for tables that get no
        /// filter because of [`filters_on_last_level`](Self::filters_on_last_level). Without the
        /// policy, its tables can still be read, but their filters are not used. It cannot change
        /// while the store is open: [`Db::set_options`](crate::Db::set_options) refuses another
        /// one.
        user_filters(Arc<dyn UserFilterPolicy> => UserPolicy::chosen):
            Option<UserPolicy> = None;
        /// Whether the tables of the last level have filters. If false, none are built for them,
        /// and those built for a higher level are neither held in memory nor probed until a deeper
        /// level appears. For stores in which nearly all lookups find their key: each missing key
        /// then costs about one read in the last level.
        filters_on_last_level: bool = true;
        /// Where filters are held in memory.
        filter_residency: FilterResidency = FilterResidency::Pinned;
        /// Maximum size of all pinned filters, in bytes. Filters read beyond it are held in the
        /// block cache. `None`: no limit; but under a
        /// [`memory_limit`](crate::Options::memory_limit) pinned filters and indexes together take
        /// at most half of it.
        pinned_filter_bytes: Option<u64> = None;
        /// Extracts the prefix of a key. Tables get a prefix filter in addition to their whole-key
        /// filter, and scans within one prefix ([`Db::prefix`](crate::Db::prefix), a range or a
        /// bounded cursor that lies within it) skip tables that do not hold that prefix. Keys
        /// without a prefix are not in the filter, and a scan that may return such keys does not
        /// probe it.
        ///
        /// Existing tables keep their filters. Those built with another extractor are not used, but
        /// counted ([`PrefixStats::unused`](crate::PrefixStats::unused)). With `None`, no prefix
        /// filters are built, and those of existing tables are used if their extractor is one of
        /// the built-in rules.
        prefix_extractor(impl Into<Option<Prefix>> => Into::into): Option<Prefix> = None;
        /// The prefix filters of each level's tables, with bits counted per prefix. It cannot be a
        /// budget. `None`: the same as [`filters`](crate::Options::filters).
        prefix_filters(impl Into<Option<FilterPolicy>> => Into::into): Option<FilterPolicy> = None;
        /// Whether tables get whole-key filters. Without them lookups probe prefix filters, so a
        /// [`prefix_extractor`](Self::prefix_extractor) must be set.
        whole_key_filters: bool = true;
    }
}

impl FilterSettings {
    /// Checks the constraints between settings.
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
        if self.prefix_filters.as_ref().is_some_and(FilterPolicy::has_ranges) {
            return Err(Error::option(
                "prefix_filters has a range filter, which is of whole keys: give it in filters",
            ));
        }
        self.user_filters.as_ref().map_or(Ok(()), UserPolicy::check)
    }
}
