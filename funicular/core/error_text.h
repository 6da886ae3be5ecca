#pragma once
// Messages for people from exceptions that Funicular did not throw itself.

#include <exception>
#include <string>

namespace funicular {

/// The message of the exception; for LibTorch's exceptions without the trace of C++ calls.
std::string error_text(const std::exception& error);

/// Whether memory was refused, by the C++ library or by LibTorch.
bool is_out_of_memory(const std::exception& error);

}  // namespace funicular
