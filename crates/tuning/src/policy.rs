//! A budget kept while the tree changes: one price, asked for each new table.
//!
//! A store builds its filters one by one, and keeps a table's for as long as the table. So what is
//! kept is the price of a byte:
//!
//! 1. Before a flush or a merge writes its tables, [`Policy::resolve`] is told the tree as it will
//!    be: without the inputs, with the outputs. It solves that tree, and keeps the price.
//! 2. For each table that is written [`Policy::choose`] gives the filter that is worth most at that
//!    price. A new table of a run has about the bits that the solution has for that run, since both
//!    are what the price buys.
//! 3. Tables that stay keep filters that were right at another price, or on another level:
//!    [`Plan::drift`] tells how far each is from today's solution.
//! 4. What filters take in memory is held to the budget by not asking some of them:
//!    [`to_drop`] names those that are worth least for their bytes.
//!
//! Invariant: the filters of [`Policy::resolve`]'s plan fit the budget. Those built one after the other
//! at changing prices need not, and that is why step 4 is there.

use trommel_filter::FilterSpec;

use crate::budget::Budget;
use crate::error::TuningError;
use crate::price::Price;
use crate::solver::{Plan, Solver};
use crate::tree::{Run, Table, Tree};
use crate::workload::Workload;

/// A budget, and the price at which it is kept.
///
/// ```
/// use trommel_tuning::{Policy, Rules, Run, Tree, Workload};
/// let mut policy = Policy::new(Rules::default(), Workload::new(1.0)?, "10/key".parse()?);
/// // The first flush: there is no tree yet.
/// assert_eq!(policy.choose(0, 100_000, 1.0).to_string(), "paired:9.994");
///
/// let tree = Tree::new(vec![Run::whole(0, 100_000), Run::whole(1, 9_900_000)])?;
/// let plan = policy.resolve(&tree)?;
/// assert!(plan.cost.filter_bytes <= 10_000_000 * 10 / 8);
/// let flushed = policy.choose(0, 100_000, policy.weight_of_new(&tree, 0, 100_000));
/// assert!(flushed.bits_per_key() > 18.0);
/// # Ok::<(), trommel_tuning::TuningError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    solver: Solver,
    workload: Workload,
    budget: Budget,
    /// None until a tree was solved.
    price: Option<Price>,
}

impl Policy {
    /// A policy that has not seen a tree.
    #[must_use]
    pub fn new(rules: crate::Rules, workload: Workload, budget: Budget) -> Self {
        Self { solver: Solver::new(rules), workload, budget, price: None }
    }

    /// The budget.
    #[must_use]
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// The workload that is planned for.
    #[must_use]
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// What is planned for from the next [`Policy::resolve`] on.
    pub fn set_workload(&mut self, workload: Workload) {
        self.workload = workload;
    }

    /// What a byte must save, since the last tree that was solved.
    #[must_use]
    pub fn price(&self) -> Option<Price> {
        self.price
    }

    /// Solves `tree`, and keeps the price. Give the tree as it will be when the job at hand is done:
    /// then the job's own tables count.
    ///
    /// # Errors
    /// [`TuningError::BelowFloors`]; the price stays what it was.
    pub fn resolve(&mut self, tree: &Tree) -> Result<Plan, TuningError> {
        let plan = self.solver.solve(tree, &self.workload, self.budget.bytes(tree.keys()))?;
        self.price = Some(plan.price);
        Ok(plan)
    }

    /// The filter for a new table of `keys` keys on `level` of this weight
    /// ([`Policy::weight_of_new`]). Before a tree was solved, that of a tree of this table alone; none
    /// where not even that fits.
    #[must_use]
    pub fn choose(&self, level: usize, keys: u64, weight: f64) -> FilterSpec {
        match self.price {
            Some(price) => self.solver.choose(level, keys, weight, price),
            None if weight > 0.0 => self.lone(level, keys).unwrap_or(FilterSpec::NONE),
            None => self.solver.choose(level, keys, weight, Price::FREE),
        }
    }

    /// The weight of a table that is about to join `tree`: [`Tree::weight_of_new`].
    #[must_use]
    pub fn weight_of_new(&self, tree: &Tree, level: usize, keys: u64) -> f64 {
        tree.weight_of_new(&self.workload, level, keys)
    }

    /// The filter of a tree of one table.
    fn lone(&self, level: usize, keys: u64) -> Result<FilterSpec, TuningError> {
        let tables = vec![Table { keys, bytes: 0, reach: 1.0, alike: 1 }];
        let tree = Tree::new(vec![Run { level, tables }])?;
        let all_miss = Workload::new(1.0)?;
        let plan = self.solver.solve(&tree, &all_miss, self.budget.bytes(keys))?;
        Ok(plan.filters.first().copied().unwrap_or(FilterSpec::NONE))
    }
}
