# Facts about the PyTorch to build against, asked from PyTorch itself: find_package(Torch) would demand
# a CUDA toolkit wherever PyTorch is a CUDA build.

if(NOT TRUEFUSE_WITH_TORCH)
  set(TRUEFUSE_TORCH_CXX11_ABI 1)
  return()
endif()

if(NOT TRUEFUSE_PYTHON)
  if(Python_EXECUTABLE)  # Given by scikit-build-core.
    set(TRUEFUSE_PYTHON "${Python_EXECUTABLE}")
  else()
    find_program(TRUEFUSE_PYTHON NAMES python3 python REQUIRED)
  endif()
endif()

set(facts_arguments --cmake "${CMAKE_CURRENT_BINARY_DIR}/torch_facts.cmake")
if(TRUEFUSE_TORCH_DIR)
  list(APPEND facts_arguments --torch-dir "${TRUEFUSE_TORCH_DIR}")
endif()
execute_process(
  COMMAND "${TRUEFUSE_PYTHON}" "${CMAKE_CURRENT_SOURCE_DIR}/scripts/torch_facts.py" ${facts_arguments}
  RESULT_VARIABLE facts_result
  ERROR_VARIABLE facts_error)
if(NOT facts_result EQUAL 0)
  message(FATAL_ERROR "no PyTorch to build against: ${facts_error}")
endif()
include("${CMAKE_CURRENT_BINARY_DIR}/torch_facts.cmake")
message(STATUS "PyTorch ${TRUEFUSE_TORCH_VERSION}, C++11 ABI ${TRUEFUSE_TORCH_CXX11_ABI}: ${TRUEFUSE_TORCH_DIR}")

add_library(truefuse_torch_headers INTERFACE)
target_include_directories(truefuse_torch_headers SYSTEM INTERFACE ${TRUEFUSE_TORCH_INCLUDE_DIRS})
# PyTorch's headers then read the functions that they use, not every one there is.
target_compile_definitions(truefuse_torch_headers INTERFACE AT_PER_OPERATOR_HEADERS)
target_link_directories(truefuse_torch_headers INTERFACE ${TRUEFUSE_TORCH_LIBRARY_DIRS})
target_link_libraries(truefuse_torch_headers INTERFACE torch torch_cpu c10)
