//! The recommended filters, and their effect.

use trommel_filter::{FilterKind, FilterSpec};
use trommel_tuning::{
    Budget, ByLevel, Cost, LevelPlan, Price, RangePlan, Rule, Rules, TuningError, Visited, Workload,
};

use super::seen::{Flow, SCANS_FOR_ADVICE, Seen, SeenLevel};
use super::{
    AdviceOptions, AdviceVerdict, FilterAdvice, FilterFigures, LOOKUPS_FOR_ADVICE, LevelAdvice,
    RangeAdvice,
};
use crate::error::{Error, Result};
use crate::filter_policy::FilterPolicy;

/// Wasted reads per lookup, over the whole tree, that are not worth bytes: one in 100,000 lookups.
const NEGLIGIBLE: f64 = 1e-5;
/// Bits per key if there are no filters yet.
const FIRST_BITS: f64 = 10.0;
/// The share of the bytes of filters of keys whose worth is the price of a byte.
const LAST_BYTES: f64 = 0.05;
/// The share of the wasted reads or the bytes that must be saved for a change to be worth it.
const WORTH: f64 = 0.05;

/// The advice for the counters.
pub(super) fn advice(seen: &Seen, options: &AdviceOptions) -> Result<FilterAdvice> {
    solved(seen, options).map_err(|error| Error::option(error.to_string()))
}

fn solved(seen: &Seen, options: &AdviceOptions) -> Result<FilterAdvice, TuningError> {
    let misses = options.misses.or(seen.misses()).unwrap_or(1.0);
    if !(0.0..=1.0).contains(&misses) {
        let what = "the share of lookups that miss";
        return Err(TuningError::OutOfRange { what, value: misses, bounds: "0 to 1" });
    }
    check_costs(&options.read_costs)?;
    let bytes_now = seen.levels.iter().map(SeenLevel::filter_bytes).sum();
    let keys = seen.levels.iter().map(SeenLevel::valued_keys).sum();
    let in_force = seen.budget.as_ref().and_then(|policy| policy.budget_bytes(keys));
    let budget_bytes = match options.budget {
        Some(budget) => budget.bytes(keys),
        None => in_force.unwrap_or(match bytes_now {
            0 => Budget::PerKey(FIRST_BITS).bytes(keys),
            bytes => bytes,
        }),
    };
    let mut advice = FilterAdvice {
        verdict: AdviceVerdict::Keep,
        lookups: seen.lookups,
        measured_misses: seen.misses(),
        misses,
        are_misses_given: options.misses.is_some(),
        budget_bytes,
        levels: Vec::new(),
        now: FilterFigures::default(),
        advised: FilterFigures::default(),
        ranges: None,
        policy: None,
    };
    if seen.levels.is_empty() {
        advice.verdict = AdviceVerdict::NoTables;
    } else if seen.lookups < LOOKUPS_FOR_ADVICE {
        // Nor is the worth of a byte in filters of keys known, at which range filters are sized.
        advice.verdict = AdviceVerdict::TooFewLookups;
    } else {
        let flows = seen.flows(misses, &options.read_costs);
        let by_level = by_level(seen, &flows)?;
        // A budget pays for range filters first.
        let of_ranges: u64 = seen.levels.iter().map(SeenLevel::range_bytes).sum();
        let for_keys = match seen.budget {
            Some(_) => budget_bytes.saturating_sub(of_ranges),
            None => budget_bytes,
        };
        let plan = choose(&by_level, &flows, for_keys)?;
        advice.fill(seen, &flows, &plan, options.budget);
        if seen.empty_scans >= SCANS_FOR_ADVICE {
            advice.ranges = Some(ranges(seen, price_of(&by_level, for_keys)?));
        }
    }
    Ok(advice)
}

/// Checks that the levels and costs are valid.
fn check_costs(costs: &[(usize, f64)]) -> Result<(), TuningError> {
    let mut workload = Workload::new(1.0)?;
    for &(level, cost) in costs {
        workload = workload.with_read_cost(level, cost)?;
    }
    Ok(())
}

/// The choices for each level.
fn by_level(seen: &Seen, flows: &[Flow]) -> Result<ByLevel, TuningError> {
    let mut rules = Rules::default();
    for level in &seen.levels {
        // The kind was chosen for unknown reasons, so it stays.
        let kind = level.kind().unwrap_or(FilterKind::Paired);
        rules = rules.with_level(level.level, Rule::new(&[kind])?);
    }
    let tables: Vec<Visited> =
        seen.levels.iter().zip(flows).flat_map(|(level, flow)| level.visited(flow)).collect();
    Ok(ByLevel::new(&rules, &tables))
}

/// The price of the last bytes that the filters of keys get.
fn price_of(by_level: &ByLevel, budget: u64) -> Result<Price, TuningError> {
    let less = (budget as f64 * (1.0 - LAST_BYTES)) as u64;
    let cost = |bytes| by_level.solve(bytes).map(|plan| plan.cost.wasted_cost);
    let saved = cost(less)? - cost(budget)?;
    let price = saved / budget.saturating_sub(less).max(1) as f64;
    Price::new(price.max(least_price(budget)?.per_byte()))
}

/// The price at which as many bytes as a budget has are worth the reads that are not worth bytes.
fn least_price(budget: u64) -> Result<Price, TuningError> {
    Price::new(NEGLIGIBLE / budget.max(1) as f64)
}

/// The range filters that are worth their bytes at this price.
fn ranges(seen: &Seen, price: Price) -> RangeAdvice {
    let (levels, lookups) = (seen.levels.iter(), seen.lookups);
    let demands: Vec<_> = levels.clone().map(|level| level.range_demand(lookups)).collect();
    let plan = RangePlan::at(&demands, price);
    let all: f64 = demands.iter().map(|demand| demand.blocks).sum();
    let rules = plan.levels.iter().map(|(level, spec)| (*level, *spec));
    let last = seen.levels.last().map_or(0, |level| level.level);
    RangeAdvice {
        empty_scans: seen.empty_scans,
        blocks: all * lookups as f64 / seen.empty_scans.max(1) as f64,
        share: if all > 0.0 { plan.wasted_reads / all } else { 1.0 },
        bytes_now: levels.clone().map(SeenLevel::range_bytes).sum(),
        bytes: plan.bytes,
        unknown: levels.filter_map(SeenLevel::failed_trial).collect(),
        policy: seen.policy.clone().with_ranges(rules, last),
    }
}

/// The filter of each level: what the budget buys, without bits that save next to nothing.
fn choose(by_level: &ByLevel, flows: &[Flow], budget: u64) -> Result<LevelPlan, TuningError> {
    let plan = by_level.solve(budget)?;
    let smaller = by_level.cheapest(plan.cost.wasted_cost + negligible(flows));
    Ok(if smaller.cost.filter_bytes < plan.cost.filter_bytes { smaller } else { plan })
}

/// The cost of wasted reads per lookup that is not worth bytes, on the level where they cost most.
fn negligible(flows: &[Flow]) -> f64 {
    NEGLIGIBLE * flows.iter().map(|flow| flow.read_cost).fold(0.0, f64::max)
}

impl From<Cost> for FilterFigures {
    fn from(cost: Cost) -> Self {
        let Cost { filter_bytes, wasted_reads, wasted_cost, lines, .. } = cost;
        Self { bytes: filter_bytes, wasted_reads, wasted_cost, lines }
    }
}

impl FilterAdvice {
    fn fill(&mut self, seen: &Seen, flows: &[Flow], plan: &LevelPlan, wanted: Option<Budget>) {
        for (level, flow) in seen.levels.iter().zip(flows) {
            let Some((filter, cost)) = plan.levels.get(&level.level) else { continue };
            let (now, advised) = (level.cost(flow).into(), (*cost).into());
            self.now.add(&now);
            self.advised.add(&advised);
            self.levels.push(LevelAdvice {
                level: level.level,
                tables: level.tables.len() as u64,
                keys: level.keys(),
                in_vain: flow.in_vain,
                read_cost: flow.read_cost,
                reach: flow.reach,
                hits: flow.hits,
                filter_now: level.in_words(),
                now,
                filter: *filter,
                advised,
                reason: String::new(),
            });
        }
        if self.is_worth_it(negligible(flows)) {
            self.verdict = AdviceVerdict::Change;
            // A budget stays a budget: filters by level would lift its limit.
            self.policy = match (&seen.budget, wanted) {
                (Some(policy), Some(budget)) => Some(policy.with_budget(budget)),
                (Some(policy), None) => Some(policy.clone()),
                (None, _) => policy(&self.levels).map(|policy| policy.with_ranges_of(&seen.policy)),
            };
        }
        self.give_reasons(seen);
    }

    /// Whether the recommended filters save enough, or the current ones take too much. Bytes are
    /// not saved at the cost of reads unless a budget requires it.
    fn is_worth_it(&self, negligible: f64) -> bool {
        let saves = |now: f64, advised: f64| advised < now * (1.0 - WORTH);
        let cheaper = self.now.wasted_cost - self.advised.wasted_cost;
        let saves_bytes = saves(self.now.bytes as f64, self.advised.bytes as f64);
        let saves_reads = saves(self.now.wasted_cost, self.advised.wasted_cost);
        saves_bytes && cheaper >= -negligible
            || saves_reads && cheaper > negligible
            || self.now.bytes > self.budget_bytes
    }
}

/// The advice as a policy. A level that does not exist yet gets the last level's filter, or that of
/// the level above if the last has none: it will not be the last any more. An empty level 0 gets
/// the first filter of the levels below.
fn policy(levels: &[LevelAdvice]) -> Option<FilterPolicy> {
    let (last, upper) = levels.split_last()?;
    let bare = last.level > 0 && last.filter == FilterSpec::NONE;
    let mut parts = Vec::new();
    if levels[0].level > 0 && !(bare && upper.is_empty()) {
        // Level 0 is empty now, but all writes arrive there first.
        let built = levels.iter().map(|level| level.filter).find(|spec| *spec != FilterSpec::NONE);
        parts.push(match built {
            Some(spec) => format!("L0={spec}"),
            None => format!("L0=paired:{FIRST_BITS}"),
        });
    }
    for (nth, level) in upper.iter().enumerate() {
        let and_below = if bare && nth + 1 == upper.len() { "-" } else { "" };
        parts.push(format!("L{}{and_below}={}", level.level, level.filter));
    }
    parts.push(match last.level {
        0 => last.filter.to_string(),
        _ if bare && upper.is_empty() => format!("paired:{FIRST_BITS},last=none"),
        _ if bare => "last=none".to_owned(),
        level => format!("L{level}-={}", last.filter),
    });
    parts.join(",").parse().ok()
}
