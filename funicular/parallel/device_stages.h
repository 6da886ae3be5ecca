#pragma once
// A model whose stages lie on several devices of one process: pipelines without a launcher.

#include <memory>

#include "funicular/parallel/layout.h"
#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

/// Layout::devices devices, each with a thread, are the ranks of one pipeline (parallel/pipeline_parallel.h), which exchange
/// messages in memory (comm::Group::in_threads). Device 0 works on the model that attach is given; the others on copies of it
/// (Model::replicate), which keep the weights of their own stages alone. Results are those of as many processes, to the
/// bit. To all who call it, this is one rank with the whole state.
///
/// `layout`: one that Layout::on gave. attach throws InputError for a model that cannot be replicated and an optimiser
/// without Optimizer::another. After an error on a device the strategy is broken: whatever devices do together throws.
std::unique_ptr<Strategy> make_device_stages(const Layout& layout, const StrategyOptions& options);

}  // namespace funicular::parallel
