#pragma once
// The memory of CPU tensors. Large tensors take it from an arena of huge pages that keeps recently needed memory (see
// runtime/arena.h), small ones from malloc as usual.

#include <cstdint>

#include "funicular/runtime/arena.h"

namespace funicular {

/// From now on every CPU tensor of the process takes its memory from here; tensors made before keep theirs. May be
/// called any number of times, from one thread, before the work begins: Trainer::fit and the program do it. Returns
/// whether tensors come from here now. They do not if the program or a library has set an allocator of its own, or if
/// the environment variable FUNICULAR_ALLOCATOR is `system`. The value `small-pages` does without huge pages, for
/// comparison. The value `caching` asks for this memory under AddressSanitizer, too, which then no longer sees
/// overruns. Throws InputError for any other value.
bool use_caching_allocator();

/// For the tensors of at least kSmallestCached bytes. All 0 unless use_caching_allocator returned true.
ArenaStatistics allocator_statistics();
inline constexpr int64_t kSmallestCached = 64 * 1024;

/// Resets the peaks of allocator_statistics to the present values.
void reset_allocator_peak();

/// Hands all free memory back to the system, malloc's too (before work of another kind, or when idle).
/// Returns the arena's bytes.
int64_t trim_allocator();

}  // namespace funicular
