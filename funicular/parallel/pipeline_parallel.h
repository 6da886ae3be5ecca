#pragma once
// A model cut into stages that lie on different ranks, and replicas of such pipelines: Huang et al., "GPipe", NeurIPS
// 2019; Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021.

#include <memory>
#include <string>
#include <vector>

#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

struct Layout;     // parallel/layout.h
class Replicated;  // parallel/replicated.h

/// With D · P ranks, rank d · P + r is rank r of the pipeline of replica d. It holds the weights, gradients and
/// optimiser state of its own stages only; frozen weights are on all ranks. It runs its row of a synchronous schedule
/// (pipeline/generators.h) on the micro-batches of its replica, which all ranks of the replica read. Losses and
/// gradients equal one process's up to the order of sums: each stage adds the gradients of micro-batches in their
/// order.
///
/// A weight that several stages use (tied word embeddings) belongs to the first of them. Later stages hold a copy to
/// compute with. After the backward passes they send their gradients to the owner, which adds them in the order of the
/// ranks. Gradients are then reduced over the replicas. After the update, later stages receive the new weight. So the
/// norm counts the weight once, and it has one optimiser state. The norm adds up the blocks of all weights in the
/// model's order.
///
/// A stage may lie on several ranks of a pipeline (StageList::replicas, or the rows of a file), which take its
/// micro-batches in turn. See Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP
/// 2019, section 3.2; here there is a flush. Once per step, its gradients are added up over all ranks that hold it,
/// even ranks without a micro-batch.
///
/// Some schedules split backward passes into I (gradients of inputs) and W (gradients of weights). W then makes the
/// products of matrices' gradients. I makes everything that a user's module or a loss computes.
///
/// Asynchronous schedules are in parallel/pipedream.h, which this makes for their names and files.
///
/// `layout` comes from Layout::on; the ranks of `group` hold one of its slices. Layout::zero is ZeRO's stage among the
/// replicas of each stage (parallel/staged_model.h). Throws InputError for --deterministic and --reduce-precision. Also
/// throws it for stages on several ranks with ZeRO's stage 2 or 3, or with a schedule that pipeline::make_replicated
/// does not have.
std::unique_ptr<Replicated> make_pipeline(comm::Group group, const Layout& layout,
                                          const StrategyOptions& options = {});

/// Throws what make_pipeline would throw.
void check_pipeline(const Layout& layout, const StrategyOptions& options);

}  // namespace funicular::parallel
