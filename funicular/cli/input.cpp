#include "funicular/cli/input.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "funicular/base/error.h"

namespace funicular::cli {

Input::Input(const fs::path& path) : name(path.empty() ? "standard input" : path.string()) {
  if (path.empty()) return;
  descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw InputError("predict", "cannot read --input {}: {}", name, errno_text(errno));
}

Input::~Input() {
  if (descriptor > STDIN_FILENO) ::close(descriptor);
}

}  // namespace funicular::cli
