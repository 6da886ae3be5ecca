#pragma once
// The known schedules, for any number of ranks and micro-batches.

#include <string>
#include <vector>

#include "funicular/pipeline/schedule.h"

namespace funicular::pipeline {

/// What is known of a schedule by its name.
struct Recipe {
  std::string name;
  std::string summary;
  bool asynchronous = false;              ///< weights are updated while the pipeline is full
  int least_chunks = 1, most_chunks = 1;  ///< stages a rank; the least is the default
};

/// naive          one micro-batch at a time
/// gpipe          all forward passes, then all backward passes: Huang et al., "GPipe: Efficient Training of Giant Neural
///                Networks using Pipeline Parallelism", NeurIPS 2019
/// 1f1b           one forward, one backward, then a flush: Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN
///                Training" (PipeDream-Flush), ICML 2021
/// interleaved    the same with several stages a rank: Narayanan et al., "Efficient Large-Scale Language Model Training
///                on GPU Clusters Using Megatron-LM", SC 2021, section 2.2
/// looped-bfs     GPipe with several stages a rank: Lamy-Poirier, "Breadth-First Pipeline Parallelism", MLSys 2023
/// zb-h1          1f1b whose weight gradients fill the end: Qi, Wan, Huang, Lin, "Zero Bubble Pipeline Parallelism", ICLR
///                2024, section 2.1
/// zb-v           two stages a rank in the shape of a V, the first and the last on rank 0: Qi, Wan, Amar, Lin, "Pipeline
///                Parallelism with Controllable Memory", NeurIPS 2024, section 4
/// pipedream      asynchronous 1f1b, an update a micro-batch, with weight stashing: Narayanan et al., "PipeDream:
///                Generalized Pipeline Parallelism for DNN Training", SOSP 2019, sections 3.2 and 3.3
/// pipedream-vertical-sync
///                the same; all ranks use for a micro-batch the version with which the first one began it: section 3.3
/// pipedream-2bw  the same with an update every `ranks` micro-batches, and two versions: Narayanan et al., ICML 2021,
///                section 3.1
const std::vector<Recipe>& recipes();
/// Throws InputError that lists the names.
const Recipe& recipe_of(const std::string& name);

/// The rows of the schedule `name` for `ranks` ranks of `chunks` stages each (0: its default) and `micro_batches`
/// micro-batches, without messages. Of several chunks stage c · ranks + r lies on rank r; of zb-v stages r and
/// 2 · ranks − 1 − r do. Every stage's backward passes are in the order of the micro-batches, so that sums of gradients
/// are. Throws InputError for numbers below 1 and for chunks that the schedule does not have.
Schedule make_schedule(const std::string& name, int ranks, int micro_batches, int chunks = 0);

/// An asynchronous schedule whose update t takes sizes[t] micro-batches. With n ranks and one micro-batch an update,
/// micro-batch k uses on rank s version max(0, k − (n − 1 − s)) of pipedream, max(0, k − (n − 1)) with vertical sync; a
/// micro-batch of batch t version max(0, t − 1) of pipedream-2bw, whatever the sizes. Batches may be added at the end:
/// the rows stay as they are up to the first pass of what is added. Throws InputError for another schedule, sizes below
/// 1, and for 2BW below n − 1 but in the last update: a version would be needed before it is made.
Schedule make_asynchronous(const std::string& name, int ranks, const std::vector<int>& sizes);

}  // namespace funicular::pipeline
