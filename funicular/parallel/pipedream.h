#pragma once
// Pipelines that update weights while they are full: Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN
// Training", SOSP 2019; "Memory-Efficient Pipeline-Parallel DNN Training", ICML 2021 (PipeDream-2BW).

#include <cstdint>
#include <memory>
#include <string>

#include "funicular/parallel/pipeline_parallel.h"

namespace funicular::parallel {

/// Runs an asynchronous schedule (parallel/asynchronous_rows.h) over the steps from one meeting (StepSettings::meeting) to the
/// next: step() adds its micro-batches at the end, and this rank does what it can with them; at a meeting the pipeline is
/// empty, and all weights are those after the last step. So with n stages, learning rate η, one micro-batch a step, and t
/// steps since the meeting, where f is the loss of the step's batch:
///   pipedream      w(t+1) = w(t) − η ∇f(w_1(t−n+1), w_2(t−n+2), …, w_n(t))     w_s: the weights of stage s
///   pipedream-vertical-sync
///                  w(t+1) = w(t) − η ∇f(w(t−n+1))
///   pipedream-2bw  w(t+1) = w(t) − η ∇f(w(t−1)), for any number of micro-batches (by default n)
/// (instead of versions before the meeting those at it), with the optimiser's update in the place of −η∇f. Of a weight that
/// several stages use all take the version that its owner, the first of them, uses for the same micro-batch: it gathers
/// the gradients of all of them for its update, and sends the new version to the others.
///
/// With several micro-batches a step, pipedream's stages use for each what is newest then on the rank that has it: of a stage on
/// several ranks, which take micro-batches in turn (1F1B-RR, section 3.2) and add up their gradients at each update, what
/// pipeline::make_asynchronous says. Each stage clips by the norm of its own gradients, over its slices if it has any: when a
/// stage updates, the gradients of the other stages are not there yet. A step with fewer micro-batches than n − 1 leaves gaps
/// under 2BW, which waits for its version.
///
/// With ZeRO's stages 2 and 3 the replicas of a stage exchange in its passes, as in synchronous schedules: those with fewer
/// micro-batches in a step take part without data. With stage 3 an older version is this rank's pieces of it, and the passes
/// that use it gather that one.
///
/// A user's own schedule is a file whose rows say which version each pass uses; all else is as above.
///
/// With fp16 the loss scale may change at meetings alone. A stage whose gradients overflow leaves out its update, and the
/// other stages do not hear of it: its version t + 1 has the weights of t, and the update counts as one.
///
/// Implements Overlapping. Throws InputError where make_pipeline does.
std::unique_ptr<Replicated> make_pipedream(comm::Group group, const Layout& layout,
                                           const StrategyOptions& options = {});

/// Into how many micro-batches its step is cut unless the caller says it.
int64_t pipedream_pieces(const Layout& layout);
/// Throws what make_pipedream would throw.
void check_pipedream(const Layout& layout, const StrategyOptions& options);

}  // namespace funicular::parallel
