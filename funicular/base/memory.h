#pragma once
// How much memory this machine, or the container that the program runs in, has left.

namespace funicular {

/// Memory in bytes that a new program can use without swapping, within the limit of the container.
double available_memory();

/// Free swap space in bytes.
double available_swap();

}  // namespace funicular
