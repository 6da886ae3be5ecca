#pragma once
// How much memory this machine, or the container that the program runs in, has left.

namespace funicular {

/// What a new program can have without swapping, and what a container allows, in bytes.
double available_memory();

/// What the system can swap out beyond that, in bytes.
double available_swap();

}  // namespace funicular
