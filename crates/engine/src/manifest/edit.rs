//! Version edits: the encoding of one change to the store, stored in the manifest's records.
//!
//! An edit is a sequence of fields, each `tag | length | bytes` with varint tag and length. A tag
//! below 128 must be understood: an unknown one is a typed error, never a guess. A tag from 128 on
//! may be skipped by versions that do not know it. Fields may occur in any order; `ADDED`,
//! `REMOVED`, `LOG_END` and `RANGE_TOMBSTONE` may repeat, the others occur at most once. The
//! description of a table ends in fields of its own, under the same rule.
//!
//! Decoding is total: any bytes give an edit or an error, and memory is bounded by their number.
//! The layout is specified in `docs/format/manifest.md`.

use std::sync::Arc;

use trommel_base::codec::{put_bytes, put_u64, put_varint};
use trommel_base::{Decoder, MAX_KEY_BYTES, MAX_SEQNO};
use trommel_filter::HashSeed;

use crate::batch::MAX_BOUND_BYTES;
use crate::expiry::TimeMarks;
use crate::levels::LEVELS;
use crate::log::LogEnd;
use crate::merge_operator::is_operator_name;
use crate::names::MAX_FILE_NUMBER;
use crate::ranges::RangeTombstone;
use crate::version::{FilterMeta, TableMeta};

/// Unknown tags from this one on may be skipped.
pub(crate) const FIRST_OPTIONAL_TAG: u64 = 128;
/// A table added to the store: level, description.
pub(crate) const TAG_ADDED: u64 = 1;
/// A table removed from the store: level, number.
pub(crate) const TAG_REMOVED: u64 = 2;
/// No file has this number or a higher one.
pub(crate) const TAG_NEXT_FILE_NUMBER: u64 = 3;
/// Highest sequence number in the tables.
pub(crate) const TAG_LAST_SEQNO: u64 = 4;
/// The oldest log still needed, 0 for none.
pub(crate) const TAG_LOG_NUMBER: u64 = 5;
/// The end of a needed log without an end marker: number, length, number of the next log.
pub(crate) const TAG_LOG_END: u64 = 6;
/// The salt of the catalog of keyspaces: keys are stored as in a store with keyspaces if the
/// catalog has this salt. Versions without keyspaces refuse the field.
pub(crate) const TAG_KEYSPACE: u64 = 7;

/// A range tombstone: sequence number, start, end; without an end, the field ends after the start.
pub(crate) const TAG_RANGE_TOMBSTONE: u64 = 8;
/// All earlier range tombstones are replaced by those of this edit; empty.
pub(crate) const TAG_RANGES_REPLACED: u64 = 9;
/// The expiry horizon and all time marks: sequence number, then for each mark its differences in
/// sequence number and time from the one before.
pub(crate) const TAG_TIME_MARKS: u64 = 10;
/// The name of the merge operator whose operands the store may hold. Tag 11 is reserved.
pub(crate) const TAG_MERGE_OPERATOR: u64 = 12;
/// Keyspaces may have merge operators of their own, named in the catalog; empty. Versions without
/// such operators refuse the field.
pub(crate) const TAG_KEYSPACE_OPERATORS: u64 = 13;
/// The expiry horizons of keyspaces, in place of that of [`TAG_TIME_MARKS`], which is in the same
/// edit: for each its id, its horizon, and since when it expires. Versions without keyspaces that
/// expire refuse the field.
pub(crate) const TAG_KEYSPACE_HORIZONS: u64 = 14;
/// The secret with which the keys of all tables are hashed. A version that does not know it would
/// find no key in a table.
pub(crate) const TAG_HASH_SEED: u64 = 15;

/// In a table's description: the filter sidecar that replaces the table's own filters.
pub(crate) const TABLE_TAG_FILTER_SIDECAR: u64 = 1;

/// In a table's description: the sequence number up to which no range tombstone deletes any of its
/// entries. A reader that skips this field searches for such entries again.
pub(crate) const TABLE_TAG_RANGES_APPLIED: u64 = 128;

/// One change to the store, applied atomically.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VersionEdit {
    /// Tables added, with their levels. A table moved to another level is removed and added.
    pub(crate) added: Vec<(u8, TableMeta)>,
    /// Numbers of the tables removed, with their levels.
    pub(crate) removed: Vec<(u8, u64)>,
    /// No file has this number or a higher one.
    pub(crate) next_file_number: Option<u64>,
    /// Highest sequence number in the tables.
    pub(crate) last_seqno: Option<u64>,
    /// The oldest log still needed, 0 for none.
    pub(crate) log_number: Option<u64>,
    /// Ends of needed logs without an end marker.
    pub(crate) log_ends: Vec<LogEnd>,
    /// Range tombstones added.
    pub(crate) ranges: Vec<RangeTombstone>,
    /// Whether these replace all earlier ones.
    pub(crate) replaces_ranges: bool,
    /// The expiry horizon and the time marks, which replace the earlier ones.
    pub(crate) time_marks: Option<Arc<TimeMarks>>,
    /// The salt of the catalog of keyspaces, which replaces the earlier one.
    pub(crate) catalog_salt: Option<u64>,
    /// Merge operators.
    pub(crate) operators: OperatorsEdit,
    /// The secret with which the keys of all tables are hashed, from before the first table on.
    pub(crate) hash_seed: Option<HashSeed>,
}

/// What an edit records about merge operators.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OperatorsEdit {
    /// The name of the store's operator, from before the first operand on.
    pub(crate) of_store: Option<Arc<str>>,
    /// Whether keyspaces may have some of their own from now on.
    pub(crate) of_keyspaces: bool,
}

impl OperatorsEdit {
    /// Records that keyspaces may have merge operators of their own, if `of_keyspaces`.
    pub(crate) fn of_keyspaces(of_keyspaces: bool) -> Self {
        Self { of_store: None, of_keyspaces }
    }
}

/// Why bytes are not an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EditError {
    /// No writer writes them.
    Damaged(&'static str),
    /// They use features of a later version.
    Unsupported(String),
}

const SHORT: EditError = EditError::Damaged("a field of the edit is too short or out of range");

impl VersionEdit {
    /// The encoded edit.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut body = Vec::new();
        let numbers = [
            (TAG_NEXT_FILE_NUMBER, self.next_file_number),
            (TAG_LAST_SEQNO, self.last_seqno),
            (TAG_LOG_NUMBER, self.log_number),
        ];
        for (tag, number) in numbers {
            if let Some(number) = number {
                put_varint(&mut body, number);
                put_field(&mut out, tag, &mut body);
            }
        }
        for LogEnd { number, end, next } in &self.log_ends {
            for part in [*number, *end, *next] {
                put_varint(&mut body, part);
            }
            put_field(&mut out, TAG_LOG_END, &mut body);
        }
        if self.replaces_ranges {
            put_field(&mut out, TAG_RANGES_REPLACED, &mut body);
        }
        for range in &self.ranges {
            put_varint(&mut body, range.seqno);
            put_bytes(&mut body, &range.from);
            range.to.iter().for_each(|to| put_bytes(&mut body, to));
            put_field(&mut out, TAG_RANGE_TOMBSTONE, &mut body);
        }
        if let Some(marks) = &self.time_marks {
            marks.encode(&mut body);
            put_field(&mut out, TAG_TIME_MARKS, &mut body);
            if let Some(keyspaces) = marks.keyspaces() {
                TimeMarks::encode_keyspaces(keyspaces, &mut body);
                put_field(&mut out, TAG_KEYSPACE_HORIZONS, &mut body);
            }
        }
        if let Some(salt) = self.catalog_salt {
            put_u64(&mut body, salt);
            put_field(&mut out, TAG_KEYSPACE, &mut body);
        }
        if let Some(name) = &self.operators.of_store {
            body.extend_from_slice(name.as_bytes());
            put_field(&mut out, TAG_MERGE_OPERATOR, &mut body);
        }
        if self.operators.of_keyspaces {
            put_field(&mut out, TAG_KEYSPACE_OPERATORS, &mut body);
        }
        if let Some(seed) = self.hash_seed {
            put_u64(&mut body, seed.word());
            put_field(&mut out, TAG_HASH_SEED, &mut body);
        }
        for (level, number) in &self.removed {
            body.push(*level);
            put_varint(&mut body, *number);
            put_field(&mut out, TAG_REMOVED, &mut body);
        }
        for (level, table) in &self.added {
            body.push(*level);
            put_table(&mut body, table);
            put_field(&mut out, TAG_ADDED, &mut body);
        }
        out
    }

    /// Decodes an edit.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, EditError> {
        let mut edit = Self::default();
        let mut decoder = Decoder::new(bytes);
        let mut horizons = None;
        while !decoder.is_empty() {
            let (tag, mut field) = field(&mut decoder)?;
            match tag {
                TAG_KEYSPACE_HORIZONS => {
                    let all = TimeMarks::decode_keyspaces(&mut field).ok_or(SHORT)?;
                    set_once(&mut horizons, all)?;
                }
                _ => edit.take_field(tag, &mut field)?,
            }
            if tag < FIRST_OPTIONAL_TAG && !field.is_empty() {
                return Err(EditError::Damaged("a field of the edit is too long"));
            }
        }
        if let Some(horizons) = horizons {
            let without = EditError::Damaged("horizons of keyspaces come without time marks");
            let marks = edit.time_marks.as_mut().ok_or(without)?;
            Arc::make_mut(marks).set_keyspaces(horizons);
        }
        Ok(edit)
    }

    fn take_field(&mut self, tag: u64, field: &mut Decoder<'_>) -> Result<(), EditError> {
        let short = SHORT;
        match tag {
            TAG_ADDED => {
                let level = level(field).ok_or(short)?;
                self.added.push((level, table(field)?));
            }
            TAG_REMOVED => {
                let removed = level(field).zip(file_number(field)).ok_or(short)?;
                self.removed.push(removed);
            }
            TAG_NEXT_FILE_NUMBER => {
                set_once(&mut self.next_file_number, file_number(field).ok_or(short)?)?;
            }
            TAG_LAST_SEQNO => set_once(&mut self.last_seqno, seqno(field).ok_or(short)?)?,
            TAG_LOG_NUMBER => {
                let number = field.varint().filter(|number| *number <= MAX_FILE_NUMBER);
                set_once(&mut self.log_number, number.ok_or(short)?)?;
            }
            TAG_LOG_END => self.log_ends.push(log_end(field).ok_or(short)?),
            TAG_RANGE_TOMBSTONE => self.ranges.push(range_tombstone(field).ok_or(short)?),
            TAG_RANGES_REPLACED => self.replaces_ranges = true,
            TAG_TIME_MARKS => {
                let marks = TimeMarks::decode(field).ok_or(short)?;
                set_once(&mut self.time_marks, Arc::new(marks))?;
            }
            TAG_KEYSPACE => set_once(&mut self.catalog_salt, field.u64().ok_or(short)?)?,
            TAG_HASH_SEED => {
                let seed = field.u64().map(HashSeed::new).filter(|it| *it != HashSeed::NONE);
                set_once(&mut self.hash_seed, seed.ok_or(short)?)?;
            }
            TAG_MERGE_OPERATOR => {
                set_once(&mut self.operators.of_store, operator_name(field).ok_or(short)?)?;
            }
            TAG_KEYSPACE_OPERATORS => self.operators.of_keyspaces = true,
            _ if tag >= FIRST_OPTIONAL_TAG => {}
            _ => {
                let what = format!("a version edit names a field {tag}");
                return Err(EditError::Unsupported(what));
            }
        }
        Ok(())
    }
}

fn put_field(out: &mut Vec<u8>, tag: u64, body: &mut Vec<u8>) {
    put_varint(out, tag);
    put_bytes(out, body);
    body.clear();
}

fn put_table(out: &mut Vec<u8>, table: &TableMeta) {
    put_varint(out, table.number);
    put_u64(out, table.table_id);
    put_varint(out, table.file_bytes);
    put_bytes(out, &table.smallest);
    put_bytes(out, &table.largest);
    for number in [
        table.min_seqno,
        table.max_seqno,
        table.entries,
        table.deletions,
        table.keys,
        table.filters.bytes,
    ] {
        put_varint(out, number);
    }
    out.push(table.filters.built_for);
    if let Some(number) = table.filters.sidecar {
        let mut body = Vec::new();
        put_varint(&mut body, number);
        put_field(out, TABLE_TAG_FILTER_SIDECAR, &mut body);
    }
    if table.ranges_applied > 0 {
        let mut body = Vec::new();
        put_varint(&mut body, table.ranges_applied);
        put_field(out, TABLE_TAG_RANGES_APPLIED, &mut body);
    }
}

fn field<'a>(decoder: &mut Decoder<'a>) -> Result<(u64, Decoder<'a>), EditError> {
    let field = decoder.varint().zip(decoder.bytes(decoder.remaining()));
    let (tag, body) = field.ok_or(EditError::Damaged("a field of the edit is cut short"))?;
    Ok((tag, Decoder::new(body)))
}

fn table(decoder: &mut Decoder<'_>) -> Result<TableMeta, EditError> {
    let mut table = fixed_part(decoder)
        .ok_or(EditError::Damaged("the description of a table is cut short or out of range"))?;
    while !decoder.is_empty() {
        let (tag, mut body) = field(decoder)?;
        match tag {
            TABLE_TAG_FILTER_SIDECAR => {
                let number = file_number(&mut body).filter(|_| body.is_empty());
                let number = number.ok_or(EditError::Damaged("a filter sidecar has no number"))?;
                set_once(&mut table.filters.sidecar, number)?;
            }
            TABLE_TAG_RANGES_APPLIED => {
                let applied = seqno(&mut body).filter(|_| body.is_empty());
                let what = "a table has no sequence number of applied range tombstones";
                table.ranges_applied = applied.ok_or(EditError::Damaged(what))?;
            }
            _ if tag >= FIRST_OPTIONAL_TAG => {}
            _ => {
                let text = format!("the description of table {} has a field {tag}", table.number);
                return Err(EditError::Unsupported(text));
            }
        }
    }
    let holds = table.smallest <= table.largest
        && table.min_seqno <= table.max_seqno
        && table.deletions <= table.entries
        && (1..=table.entries).contains(&table.keys);
    holds
        .then_some(table)
        .ok_or(EditError::Damaged("the description of a table contradicts itself"))
}

fn fixed_part(decoder: &mut Decoder<'_>) -> Option<TableMeta> {
    Some(TableMeta {
        number: file_number(decoder)?,
        table_id: decoder.u64()?,
        file_bytes: decoder.varint()?,
        smallest: decoder.bytes(MAX_KEY_BYTES)?.into(),
        largest: decoder.bytes(MAX_KEY_BYTES)?.into(),
        min_seqno: seqno(decoder)?,
        max_seqno: seqno(decoder)?,
        entries: decoder.varint()?,
        deletions: decoder.varint()?,
        keys: decoder.varint()?,
        filters: FilterMeta { bytes: decoder.varint()?, built_for: level(decoder)?, sidecar: None },
        ranges_applied: 0,
    })
}

fn set_once<T>(slot: &mut Option<T>, value: T) -> Result<(), EditError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(EditError::Damaged("a field that stands once stands twice")),
    }
}

fn level(decoder: &mut Decoder<'_>) -> Option<u8> {
    decoder.u8().filter(|level| usize::from(*level) < LEVELS)
}

fn log_end(decoder: &mut Decoder<'_>) -> Option<LogEnd> {
    let (number, end) = (file_number(decoder)?, decoder.varint()?);
    let next = file_number(decoder).filter(|next| *next > number)?;
    Some(LogEnd { number, end, next })
}

fn range_tombstone(decoder: &mut Decoder<'_>) -> Option<RangeTombstone> {
    let (seqno, from) = (seqno(decoder)?, decoder.bytes(MAX_BOUND_BYTES)?);
    let to = match decoder.is_empty() {
        true => None,
        false => Some(decoder.bytes(MAX_BOUND_BYTES).filter(|to| *to > from)?),
    };
    Some(RangeTombstone::new(from, to, seqno))
}

fn operator_name(decoder: &mut Decoder<'_>) -> Option<Arc<str>> {
    let name = std::str::from_utf8(decoder.take(decoder.remaining())?).ok()?;
    is_operator_name(name).then(|| name.into())
}

fn file_number(decoder: &mut Decoder<'_>) -> Option<u64> {
    decoder.varint().filter(|number| (1..=MAX_FILE_NUMBER).contains(number))
}

fn seqno(decoder: &mut Decoder<'_>) -> Option<u64> {
    decoder.varint().filter(|seqno| *seqno <= MAX_SEQNO)
}
