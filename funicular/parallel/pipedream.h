#pragma once
// Pipelines that update weights while they are full: Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for
// DNN Training", SOSP 2019; "Memory-Efficient Pipeline-Parallel DNN Training", ICML 2021 (PipeDream-2BW).

#include <cstdint>
#include <memory>
#include <string>

#include "funicular/parallel/pipeline_parallel.h"

namespace funicular::parallel {

/// Runs an asynchronous schedule (parallel/asynchronous_rows.h) over the steps from one meeting (StepSettings::meeting)
/// to the next. step() appends its micro-batches, and this rank runs everything that they make possible. At a meeting
/// the pipeline is empty, and all weights are the ones after the last step.
///
/// Take n stages, learning rate η, one micro-batch per step, t steps since the meeting, and the loss f of the step's
/// batch. The schedules then compute, with the optimiser's update in place of −η∇f:
///   `pipedream`       w(t+1) = w(t) − η ∇f(w_1(t−n+1), w_2(t−n+2), …, w_n(t)), with the weights w_s of stage s;
///   `pipedream-vertical-sync`
///                     w(t+1) = w(t) − η ∇f(w(t−n+1));
///   `pipedream-2bw`   w(t+1) = w(t) − η ∇f(w(t−1)), for any number of micro-batches (by default n).
/// The version at the meeting takes the place of all versions before it.
///
/// A weight that several stages use belongs to the first of them, its owner. For a given micro-batch, all these stages
/// use the version that the owner uses. The owner gathers their gradients for its update, and sends them the new
/// version.
///
/// With several micro-batches per step, a stage of pipedream uses for each the version that is newest on its rank at
/// that time. The ranks of a replicated stage take micro-batches in turn (1F1B-RR, section 3.2) and add up their
/// gradients at each update; pipeline::make_asynchronous defines their versions. Each stage clips by the norm of its
/// own gradients, over its slices if it has any. When it updates, the gradients of other stages do not exist yet. 2BW
/// waits for its version, so a step with fewer than n − 1 micro-batches leaves gaps.
///
/// With ZeRO's stages 2 and 3, the replicas of a stage exchange in its passes, as in synchronous schedules. A replica
/// with fewer micro-batches in a step takes part without data. With stage 3, a rank keeps only its pieces of an older
/// version, and the passes that use this version gather it.
///
/// A user's own schedule is a file whose rows say which version each pass uses. All else is as above.
///
/// With fp16, the loss scale may change only at meetings. A stage whose gradients overflow leaves out its update
/// without telling other stages. Its version t + 1 has the weights of t, and the update still counts.
///
/// Implements Overlapping. Throws InputError where make_pipeline does.
std::unique_ptr<Replicated> make_pipedream(comm::Group group, const Layout& layout,
                                           const StrategyOptions& options = {});

/// The default number of micro-batches per step.
int64_t pipedream_pieces(const Layout& layout);
/// Throws what make_pipedream would throw.
void check_pipedream(const Layout& layout, const StrategyOptions& options);

}  // namespace funicular::parallel
