//! `trommel tune simulate`.

use std::io::Write;

use clap::Args;
use trommel::tuning::Cost;
use trommel_harness::units::{parse_bytes, parse_count, parse_part};
use trommel_lab::simulate::{Simulated, Simulation, TreeShape, simulate};

use super::cost::CostArgs;
use crate::failure::Failure;
use crate::output::{Output, OutputArgs, Value};
use crate::shared_args::whole;

pub(crate) const LONG_ABOUT: &str = "\
Computes the tree of a store with a given number of keys, and for each of several filter policies \
the bytes of its filters and the expected cost of a lookup: wasted block reads, filter queries, \
and the cache lines that they touch. Nothing is built, so there may be more keys than fit on any \
disk. The results end with the assumptions behind them.

Policies have the syntax of --filters in other commands, and may be budgets: budget=10/key stands \
for the filters with the fewest wasted reads among all that take 10 bits per key on average, \
budget=64MiB among all of that size.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel tune simulate --keys 1e9 --value-size 256
  trommel tune simulate --keys 100M --misses 0.2 --filters paired:12 --filters budget=12/key
  trommel tune simulate --keys 1e9 --read-cost L0=0.1 --read-cost L1=0.1
  trommel tune simulate --keys 1e9 --filters L0=paired:14,L1-=paired:10,last=none --format json";

/// The default policies to compare: even bits, the store's default, and the same bits as the first,
/// solved.
const POLICIES: [&str; 3] = ["paired:10", "L0=paired:16,L1-=paired:12", "budget=10/key"];

const COLUMNS: [&str; 6] = [
    "policy",
    "bits_per_key",
    "filter_bytes",
    "wasted_reads_per_lookup",
    "filters_queried",
    "cache_lines",
];
const LEVEL_COLUMNS: [&str; 6] =
    ["policy", "level", "filter", "bits_per_key", "filter_bytes", "wasted_reads_per_lookup"];

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// Distinct keys, as in 500K, 20M or 1e9
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    keys: u64,
    /// Bytes of a key
    #[arg(long, value_name = "BYTES", default_value = "16", value_parser = parse_bytes)]
    key_size: u64,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value = "100", value_parser = parse_bytes)]
    value_size: u64,
    /// The fraction of its size that an entry is compressed to
    #[arg(long, value_name = "PART", default_value = "1", value_parser = parse_part)]
    compressed: f64,
    /// The share of lookups that find nothing
    #[arg(long, value_name = "SHARE", default_value = "1", value_parser = parse_part)]
    misses: f64,
    /// A filter policy or budget to compare; may be given several times [default: paired:10,
    /// the store's own default, and budget=10/key]
    #[arg(long, value_name = "POLICY")]
    filters: Vec<String>,
    /// Bytes of a memtable
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = parse_bytes)]
    write_buffer_size: u64,
    /// Bytes of a table
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = parse_bytes)]
    table_size: u64,
    /// Bytes of the smallest level below level 0
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_bytes)]
    base_level_size: u64,
    /// How many times larger each level is than the one above
    #[arg(long, value_name = "TIMES", default_value = "10", value_parser = whole::<u64>)]
    level_ratio: u64,
    /// Sorted runs in level 0
    #[arg(long, value_name = "COUNT", default_value = "2", value_parser = whole::<u64>)]
    l0_runs: u64,
    #[command(flatten)]
    costs: CostArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl SimulateArgs {
    fn shape(&self) -> TreeShape {
        TreeShape {
            keys: self.keys,
            key_bytes: self.key_size,
            value_bytes: self.value_size,
            compressed: self.compressed,
            write_buffer_bytes: self.write_buffer_size,
            table_bytes: self.table_size,
            base_level_bytes: self.base_level_size,
            level_ratio: self.level_ratio,
            l0_runs: self.l0_runs,
            ..TreeShape::default()
        }
    }
}

pub(crate) fn run(args: &SimulateArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let given = !args.filters.is_empty();
    let policies = if given { args.filters.clone() } else { POLICIES.map(str::to_owned).to_vec() };
    let costs: Vec<(usize, f64)> = args.costs.levels().collect();
    let simulation = simulate(&args.shape(), args.misses, &costs, &policies)?;
    let mut output = args.output.begin("tune-simulate", out);
    write_tree(&simulation, &mut output)?;
    write_policies(&simulation.policies, args.costs.are_given(), &mut output)?;
    output.list("assumptions", &["assumed"])?;
    for assumption in &simulation.assumptions {
        output.row(vec![(&**assumption).into()])?;
    }
    Ok(output.finish()?)
}

fn write_tree(simulation: &Simulation, output: &mut Output<'_>) -> Result<(), Failure> {
    output.list("tree", &["level", "runs", "tables", "keys", "data_bytes"])?;
    for level in &simulation.levels {
        output.row(vec![
            format!("L{}", level.level).into(),
            Value::Count(level.runs),
            Value::Count(level.tables),
            Value::Count(level.keys),
            Value::Size(level.data_bytes),
        ])?;
    }
    Ok(())
}

/// Costs have columns of their own if they are not simply reads.
fn write_policies(
    policies: &[Simulated],
    has_costs: bool,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let with_cost = |columns: &[&'static str]| {
        let cost = has_costs.then_some("wasted_cost_per_lookup");
        columns.iter().copied().chain(cost).collect::<Vec<_>>()
    };
    let add_cost = |row: &mut Vec<Value>, cost: &Cost| {
        if has_costs {
            row.push(cost.wasted_cost.into());
        }
    };
    output.list("policies", &with_cost(&COLUMNS))?;
    for policy in policies {
        let mut row = vec![
            (&*policy.policy).into(),
            policy.bits_per_key.into(),
            Value::Size(policy.cost.filter_bytes),
            policy.cost.wasted_reads.into(),
            policy.cost.filters_queried.into(),
            policy.cost.lines.into(),
        ];
        add_cost(&mut row, &policy.cost);
        output.row(row)?;
    }
    output.list("levels", &with_cost(&LEVEL_COLUMNS))?;
    for policy in policies {
        for level in &policy.levels {
            let mut row = vec![
                (&*policy.policy).into(),
                format!("L{}", level.level).into(),
                (&*level.filter).into(),
                level.bits_per_key.into(),
                Value::Size(level.cost.filter_bytes),
                level.cost.wasted_reads.into(),
            ];
            add_cost(&mut row, &level.cost);
            output.row(row)?;
        }
    }
    Ok(())
}
