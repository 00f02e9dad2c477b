#pragma once

#include <truefuse/capi/truefuse.h>

/// Operators that a text describes, for Python. Answers are JSON as in truefuse.h. Texts that are
/// not needed are empty. A handle stays valid for the rest of the process.

#ifdef __cplusplus
extern "C" {
#endif

/// A source: the name that `kernel:`, `plan:` and #include directives use, and its text.
struct truefuse_file {
  const char* name;
  const char* text;
};

/// Reads the description `file` of a folder, with the sources beside it, and checks it;
/// nothing is registered. `name_space` and `op` replace the names that it has. {handle, namespace,
/// name, schema, contract, reference, cpu, gpu, has_kernel, backward_file, backward,
/// gradients: [..], origin}
TRUEFUSE_EXPORT char* truefuse_describe_folder(const char* path, const char* file,
                                               const char* name_space, const char* op);

/// The same of texts; `name` stands for the folder's name in errors.
TRUEFUSE_EXPORT char* truefuse_describe_texts(const char* name, const char* text,
                                              const truefuse_file* files, int count,
                                              const char* name_space, const char* op);

/// New texts for an operator that came from texts: {}
TRUEFUSE_EXPORT char* truefuse_describe_replace(int handle, const char* text,
                                                const truefuse_file* files, int count);

#ifdef __cplusplus
}

namespace truefuse::description {
class Watched;
}

namespace truefuse::capi {
/// Throws Error for a handle that was never given out.
description::Watched& described(int handle);
}  // namespace truefuse::capi
#endif
