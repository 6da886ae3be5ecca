#include "funicular/core/error_text.h"

#include <c10/util/Exception.h>

#include <new>

namespace funicular {

std::string error_text(const std::exception& error) {
  if (const auto* of_torch = dynamic_cast<const c10::Error*>(&error))
    return of_torch->what_without_backtrace();
  return error.what();
}

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) || dynamic_cast<const c10::OutOfMemoryError*>(&error))
    return true;
  // LibTorch has no type of its own for the CPU's.
  return dynamic_cast<const c10::Error*>(&error) &&
         error_text(error).find("can't allocate memory") != std::string::npos;
}

}  // namespace funicular
