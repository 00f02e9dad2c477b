#include <truefuse/core/tensor.h>

namespace truefuse {

std::string to_string(const Device& device) {
  std::string name;
  switch (device.type) {
    case DeviceType::cpu:
      name = "cpu";
      break;
    case DeviceType::cuda:
      name = "cuda";
      break;
    case DeviceType::meta:
      name = "meta";
      break;
    case DeviceType::other:
      name = "an unsupported device";
      break;
  }
  if (device.type == DeviceType::cuda && device.index >= 0)
    name += ":" + std::to_string(device.index);
  return name;
}

}  // namespace truefuse
