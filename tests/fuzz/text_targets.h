#pragma once

#include "targets.h"

namespace truefuse::fuzz {

void run_arch(std::string_view input);
void run_contract(std::string_view input);
void run_layout(std::string_view input);
void run_source(std::string_view input);

}  // namespace truefuse::fuzz
