//! Sorts records for a page into the lines of a chart and the columns of a comparison.
//!
//! 1. A *variant* is a store with its settings and build. Each has a colour. If two files hold the
//!    same workload of one variant, each file is a variant of its own, so that the runs can be
//!    compared; the runs within one file are repeats.
//! 2. A *group* is one workload, at one occurrence in the run, with the records of each variant.

use std::collections::BTreeSet;

use trommel_harness::record::{Record, plain, turns};

use super::html::{HtmlCell, escaped, table};
use super::svg::Role;

/// A file of records.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// Its name, if the page must distinguish files.
    pub name: String,
    /// Its records.
    pub records: Vec<Record>,
}

/// A store with its settings.
#[derive(Debug)]
pub(super) struct Variant<'a> {
    /// The label that distinguishes it from the others.
    pub(super) label: String,
    /// Its records, in order.
    pub(super) records: Vec<&'a Record>,
    source: usize,
}

/// One workload.
#[derive(Debug)]
pub(super) struct WorkloadGroup<'a> {
    /// Its name, with a number from its second occurrence on.
    pub(super) name: String,
    /// The repeats of each variant.
    pub(super) records: Vec<Vec<&'a Record>>,
}

/// All records, sorted.
#[derive(Debug)]
pub(super) struct Data<'a> {
    pub(super) variants: Vec<Variant<'a>>,
    pub(super) groups: Vec<WorkloadGroup<'a>>,
}

impl<'a> Data<'a> {
    pub(super) fn new(sources: &'a [Source]) -> Self {
        let mut data = Self::sorted(sources, false);
        if data.mixes_files(sources) {
            data = Self::sorted(sources, true);
        }
        data.label(sources);
        data
    }

    /// The table cell that names a variant, with its colour.
    pub(super) fn store_cell(&self, variant: usize) -> HtmlCell {
        let colour = Role::Series(variant).variable();
        let label = escaped(&self.variants[variant].label);
        HtmlCell::html(format!("<i class=\"dot\" style=\"background:{colour}\"></i>{label}"))
    }

    /// A table, without its column "Store" if there is only one.
    pub(super) fn table(&self, head: &[&str], mut rows: Vec<Vec<HtmlCell>>) -> String {
        let mut head = head.to_vec();
        let column = head.iter().position(|name| *name == "Store");
        if let Some(column) = column.filter(|_| self.variants.len() == 1) {
            head.remove(column);
            for row in &mut rows {
                row.remove(column);
            }
        }
        table("", &head, &rows)
    }

    fn sorted(sources: &'a [Source], by_file: bool) -> Self {
        let mut data = Self { variants: Vec::new(), groups: Vec::new() };
        for (source, Source { records, .. }) in sources.iter().enumerate() {
            for (record, turn) in records.iter().zip(turns(records)) {
                let variant = data.variant_of(record, source, by_file);
                let name = match turn {
                    1 => record.workload.clone(),
                    _ => format!("{}#{turn}", record.workload),
                };
                let at = data.groups.iter().position(|group| group.name == name);
                let at = at.unwrap_or_else(|| {
                    data.groups.push(WorkloadGroup { name, records: Vec::new() });
                    data.groups.len() - 1
                });
                let slots = &mut data.groups[at].records;
                slots.resize(slots.len().max(variant + 1), Vec::new());
                slots[variant].push(record);
            }
        }
        let variants = data.variants.len();
        for group in &mut data.groups {
            group.records.resize(variants, Vec::new());
        }
        data
    }

    fn variant_of(&mut self, record: &'a Record, source: usize, by_file: bool) -> usize {
        let is_same = |variant: &Variant<'_>| {
            let other = variant.records[0];
            other.store == record.store
                && other.settings == record.settings
                && other.environment.build.program == record.environment.build.program
                && other.environment.build.commit == record.environment.build.commit
                && (!by_file || variant.source == source)
        };
        let at = self.variants.iter().position(is_same).unwrap_or_else(|| {
            let label = record.store.name.clone();
            self.variants.push(Variant { label, records: Vec::new(), source });
            self.variants.len() - 1
        });
        self.variants[at].records.push(record);
        at
    }

    /// Whether repeats of one workload come from several files.
    fn mixes_files(&self, sources: &[Source]) -> bool {
        let file_of = |record: &Record| {
            sources
                .iter()
                .position(|source| source.records.iter().any(|other| std::ptr::eq(other, record)))
        };
        let repeats = self.groups.iter().flat_map(|group| &group.records);
        repeats.into_iter().any(|records| {
            records.iter().map(|record| file_of(record)).collect::<BTreeSet<_>>().len() > 1
        })
    }

    /// Extends the names of variants that have the same name by their differences.
    fn label(&mut self, sources: &[Source]) {
        let names: Vec<String> = self.variants.iter().map(|one| one.label.clone()).collect();
        let labels: Vec<String> = (0..names.len())
            .map(|at| {
                let others = |nth: &usize| *nth != at && names[*nth] == names[at];
                let namesakes: Vec<usize> = (0..names.len()).filter(others).collect();
                let marks = self.marks(at, &namesakes, sources);
                match marks.is_empty() {
                    true => names[at].clone(),
                    false => format!("{} ({})", names[at], marks.join(", ")),
                }
            })
            .collect();
        for (variant, label) in self.variants.iter_mut().zip(labels) {
            variant.label = label;
        }
    }

    /// The differences of a variant from others of the same name.
    fn marks(&self, at: usize, namesakes: &[usize], sources: &[Source]) -> Vec<String> {
        let mine = self.variants[at].records[0];
        let others = || namesakes.iter().map(|nth| self.variants[*nth].records[0]);
        let mut marks = Vec::new();
        if others().any(|other| other.store.version != mine.store.version) {
            marks.push(mine.store.version.clone());
        }
        if others().any(|other| other.environment.build.commit != mine.environment.build.commit) {
            marks.push(mine.environment.build.commit.clone().unwrap_or_else(|| "no commit".into()));
        }
        for (name, value) in &mine.settings {
            if others().any(|other| other.settings.get(name) != Some(value)) {
                marks.push(format!("{name} {}", plain(value)));
            }
        }
        let source = self.variants[at].source;
        let is_elsewhere = |nth: &usize| self.variants[*nth].source != source;
        if marks.is_empty() && namesakes.iter().any(is_elsewhere) {
            marks.push(sources[source].name.clone());
        }
        marks.truncate(3);
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::full;

    fn source(name: &str, change: impl Fn(&mut Record)) -> Source {
        let mut records = vec![full(), full()];
        records[1].repeat = 2;
        records.iter_mut().for_each(change);
        Source { name: name.into(), records }
    }

    fn labels(sources: &[Source]) -> Vec<String> {
        Data::new(sources).variants.into_iter().map(|variant| variant.label).collect()
    }

    #[test]
    fn repeats_are_one_variant_and_settings_make_two() {
        let one = source("a", |_| {});
        let data = Data::new(std::slice::from_ref(&one));
        assert_eq!((data.variants.len(), data.groups.len()), (1, 1));
        assert_eq!(
            (data.variants[0].label.as_str(), data.groups[0].records[0].len()),
            ("trommel", 2)
        );
        let other = source("b", |record| {
            record.settings.insert("filters".into(), "none".into());
        });
        assert_eq!(
            labels(&[one.clone(), other]),
            ["trommel (filters L0=paired:16,L1-=paired:12)", "trommel (filters none)"]
        );
        let rival = source("b", |record| record.store.name = "redb".into());
        assert_eq!(labels(&[one.clone(), rival]), ["trommel", "redb"]);
        assert_eq!(labels(&[one.clone(), one]), ["trommel (a)", "trommel (a)"]);
    }

    #[test]
    fn shards_of_a_run_are_joined() {
        let sources =
            [source("a", |_| {}), source("b", |record| record.workload = "readseq".into())];
        let data = Data::new(&sources);
        assert_eq!((data.variants.len(), data.groups.len()), (1, 2));
    }
}
