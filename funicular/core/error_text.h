#pragma once
// What a person reads of an exception that Funicular did not throw itself.

#include <exception>
#include <string>

namespace funicular {

/// What the exception says; of LibTorch's the message without the trace of C++ calls.
std::string error_text(const std::exception& error);

/// Whether memory was refused, by the C++ library or by LibTorch.
bool is_out_of_memory(const std::exception& error);

}  // namespace funicular
