#pragma once
// A model cut into stages that lie on different ranks, and replicas of such pipelines: Huang et al., "GPipe", NeurIPS 2019;
// Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021.

#include <memory>
#include <string>
#include <vector>

#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

struct Layout;     // parallel/layout.h
class Replicated;  // parallel/replicated.h

/// With D · P ranks, rank d · P + r is rank r of the pipeline of replica d. It holds weights, gradients and optimiser state
/// of its own stages alone (frozen weights are everywhere), and runs its row of a synchronous schedule
/// (pipeline/generators.h) on the micro-batches of its replica, which all ranks of the replica read. Losses and gradients
/// are those of one process up to the order of sums: each stage adds the gradients of micro-batches in their order.
///
/// A weight that several stages use (tied word embeddings) belongs to the first of them. The others hold a copy that is
/// computed with: after the backward passes they send their gradient there, where these are added in the order of the
/// ranks; after the update they get the weight back. So it is counted once in the norm, and has one optimiser state.
/// Gradients are then reduced over the replicas. The norm adds up the blocks of all weights in the model's order.
///
/// A stage may lie on several ranks of a pipeline (StageList::replicas, or the rows of a file), which take its
/// micro-batches in turn: Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019, section
/// 3.2, here with a flush. Its gradients are added up over all ranks that hold it once a step, those without a micro-batch too.
///
/// Where a schedule splits I from W, the products of matrices' gradients are made in W; what a module of a user's or a
/// loss computes is made in I.
///
/// Asynchronous schedules are in parallel/pipedream.h, which this makes for their names and files.
///
/// `layout` is one that Layout::on gave; of its slices the ranks of `group` hold one. Layout::zero is ZeRO's stage among the
/// replicas of each stage (parallel/staged_model.h). Throws InputError for what pipelines cannot do: --deterministic,
/// --reduce-precision; stages on several ranks of other schedules than pipeline::make_replicated
/// has, or with ZeRO's stage 2 or 3.
std::unique_ptr<Replicated> make_pipeline(comm::Group group, const Layout& layout,
                                          const StrategyOptions& options = {});

/// Throws what make_pipeline would throw.
void check_pipeline(const Layout& layout, const StrategyOptions& options);

}  // namespace funicular::parallel
