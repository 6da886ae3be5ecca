#pragma once
// The names of gloo's transport that c10d's headers mention. LibTorch holds gloo's code, but not its headers.

namespace gloo::transport {

class Device;

class UnboundBuffer {
 public:
  virtual ~UnboundBuffer();
};

}  // namespace gloo::transport
