# truefuse_gtest: GoogleTest with PyTorch's C++ ABI. The installed one if it has that ABI, else built from its
# sources, which Debian and Ubuntu install beside it: an older PyTorch, and DTK's, has the ABI from before C++11.
include(CheckCXXSourceCompiles)

find_package(GTest)
if(GTest_FOUND)
  set(CMAKE_REQUIRED_LIBRARIES GTest::gtest pthread)
  set(CMAKE_REQUIRED_DEFINITIONS -D_GLIBCXX_USE_CXX11_ABI=${TRUEFUSE_TORCH_CXX11_ABI})
  check_cxx_source_compiles("
    #include <gtest/gtest.h>
    int main() { return testing::Message().GetString().empty() ? 0 : 1; }" TRUEFUSE_INSTALLED_GTEST_FITS)
  unset(CMAKE_REQUIRED_LIBRARIES)
  unset(CMAKE_REQUIRED_DEFINITIONS)
endif()

if(TRUEFUSE_INSTALLED_GTEST_FITS)
  add_library(truefuse_gtest INTERFACE)
  target_link_libraries(truefuse_gtest INTERFACE GTest::gtest GTest::gtest_main)
else()
  set(TRUEFUSE_GTEST_SOURCES /usr/src/googletest/googletest CACHE PATH "Folder with GoogleTest's src and include")
  if(NOT EXISTS "${TRUEFUSE_GTEST_SOURCES}/src/gtest-all.cc")
    message(FATAL_ERROR
      "Either no GoogleTest is installed, or it was compiled with another C++ ABI than "
      "PyTorch (_GLIBCXX_USE_CXX11_ABI=${TRUEFUSE_TORCH_CXX11_ABI}); and there are no sources of it in "
      "${TRUEFUSE_GTEST_SOURCES}. Debian, Ubuntu: apt-get install libgtest-dev; elsewhere unpack GoogleTest and "
      "set TRUEFUSE_GTEST_SOURCES to its folder googletest")
  endif()
  add_library(truefuse_gtest STATIC "${TRUEFUSE_GTEST_SOURCES}/src/gtest-all.cc"
                                    "${TRUEFUSE_GTEST_SOURCES}/src/gtest_main.cc")
  target_include_directories(truefuse_gtest PRIVATE "${TRUEFUSE_GTEST_SOURCES}")
  target_include_directories(truefuse_gtest SYSTEM PUBLIC "${TRUEFUSE_GTEST_SOURCES}/include")
  target_compile_definitions(truefuse_gtest PUBLIC _GLIBCXX_USE_CXX11_ABI=${TRUEFUSE_TORCH_CXX11_ABI})
  target_link_libraries(truefuse_gtest PUBLIC pthread)
endif()
