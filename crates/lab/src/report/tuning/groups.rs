//! Groups records for a page.

use crate::report::svg::Role;
use crate::tune::Record;

/// Cells that differ only in their filters.
pub(super) struct Group<'a> {
    /// A description of the setting that they share, unique to the group.
    pub(super) place: String,
    /// The exact setting that they share.
    setting: String,
    /// In the order of the records.
    pub(super) records: Vec<&'a Record>,
}

/// All records, sorted.
pub(super) struct Groups<'a> {
    pub(super) groups: Vec<Group<'a>>,
    families: Vec<&'a str>,
}

impl<'a> Groups<'a> {
    pub(super) fn new(records: &'a [Record]) -> Self {
        let mut sorted = Self { groups: Vec::new(), families: Vec::new() };
        for record in records {
            let setting = record.cell.setting();
            match sorted.groups.iter_mut().find(|group| group.setting == setting) {
                Some(group) => group.records.push(record),
                None => sorted.begin(record, setting),
            }
            let family = record.cell.family.as_str();
            if !sorted.families.contains(&family) {
                sorted.families.push(family);
            }
        }
        sorted
    }

    /// Starts the group of `record`, with a name that distinguishes it from other groups.
    fn begin(&mut self, record: &'a Record, setting: String) {
        let mut place = record.cell.place();
        if self.groups.iter().any(|group| group.place == place) {
            place = format!("{place}; {}", record.cell.details());
        }
        let same = self.groups.iter().filter(|group| group.place.starts_with(&place)).count();
        if same > 0 {
            place = format!("{place} ({})", same + 1);
        }
        self.groups.push(Group { place, setting, records: vec![record] });
    }

    /// The families with their colours.
    pub(super) fn families(&self) -> impl Iterator<Item = (Role, &'a str)> {
        self.families.iter().enumerate().map(|(nth, family)| (Role::Series(nth), *family))
    }

    /// The records of each family in a group that has any, each with its colour.
    pub(super) fn by_family(&self, group: &Group<'a>) -> Vec<(Role, Vec<&'a Record>)> {
        let of = |(role, family): (Role, &str)| {
            let records = group.records.iter().copied();
            let mut records: Vec<_> =
                records.filter(|record| record.cell.family == family).collect();
            records.sort_by(|a, b| a.filter_bytes.total_cmp(&b.filter_bytes));
            (role, records)
        };
        self.families().map(of).filter(|(_, records)| !records.is_empty()).collect()
    }
}

impl<'a> Group<'a> {
    /// The Pareto front by bytes and `cost`: the records that no other beats in both, ordered by
    /// bytes.
    pub(super) fn front(&self, cost: impl Fn(&Record) -> f64) -> Vec<&'a Record> {
        let mut sorted = self.records.clone();
        sorted.sort_by(|a, b| {
            a.filter_bytes.total_cmp(&b.filter_bytes).then(cost(a).total_cmp(&cost(b)))
        });
        let mut least = f64::INFINITY;
        sorted.retain(|record| {
            let is_better = cost(record) < least;
            least = least.min(cost(record));
            is_better
        });
        sorted
    }
}
