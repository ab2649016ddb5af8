// npu_enque_tensor: values that the host prints.

#include <ATen/ATen.h>
#include <NPUCustomFunctions.h>

#include <iostream>
#include <sstream>
#include <string_view>

namespace at::native::npu {

// On a card a channel of the driver takes them to a thread that prints; here the host prints, and waits for them.
void npu_enque_tensor(TensorList tensors, std::string_view format_string) {
  std::ostringstream text;
  size_t next = 0;
  while (next < tensors.size()) {
    const size_t place = format_string.find("{}");
    if (place == std::string_view::npos) break;
    text << format_string.substr(0, place) << tensors[next++].cpu();
    format_string.remove_prefix(place + 2);
  }
  text << format_string << '\n';
  for (; next < tensors.size(); ++next) text << tensors[next].cpu() << '\n';
  std::cout << text.str() << std::flush;
}

}  // namespace at::native::npu
