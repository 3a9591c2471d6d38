//! How the operations of batches are printed.

use trommel::BatchOp;

use crate::output::Value;
use crate::text::{KeyForm, ValueForm};

/// The columns `kind`, `key` and `value` of an operation; `None` if it is of a kind that this
/// version does not print. The value of a deleted range is its end.
pub(crate) fn columns(op: BatchOp<'_>, keys: KeyForm, values: ValueForm) -> Option<[Value; 3]> {
    let (kind, key, value) = match op {
        BatchOp::Put { key, value } => ("put", key, values.print(value).into()),
        BatchOp::Delete { key } => ("delete", key, Value::Null),
        BatchOp::Merge { key, operand } => ("merge", key, values.print(operand).into()),
        BatchOp::DeleteRange { from, to } => {
            let end = to.map(|to| keys.print(to).into());
            ("delete_range", from, end.unwrap_or(Value::Null))
        }
        BatchOp::TimeMark { until } => ("time_mark", &[][..], Value::Count(until)),
        _ => return None,
    };
    Some([kind.into(), keys.print(key).into(), value])
}
