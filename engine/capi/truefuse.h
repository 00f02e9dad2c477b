#pragma once

/// The C face of the engine: what the command-line tool asks, without PyTorch and without
/// exceptions across the boundary. Functions that return `char*` return a JSON text to be released
/// with truefuse_free: the answer, or {"error": "<sentence>"}. All are thread-safe; no
/// argument is null.

#ifdef __cplusplus
extern "C" {
#endif

#define TRUEFUSE_EXPORT __attribute__((visibility("default")))

/// "0.1.0"; static.
TRUEFUSE_EXPORT const char* truefuse_version(void);
TRUEFUSE_EXPORT void truefuse_free(char* text);

/// Where compilers may be found besides the loader's and the toolkits' usual places: PyTorch's
/// library folder, and folders that hold pip packages, separated by newlines. Both may be empty.
TRUEFUSE_EXPORT void truefuse_set_search_paths(const char* torch_lib, const char* site_dirs);

/// [{namespace, name, schema, summary, contract, variants: [{label, kernel, shown}]}]
TRUEFUSE_EXPORT char* truefuse_operators(void);

/// What a contract's text says (Contract::json), or what is wrong with it.
TRUEFUSE_EXPORT char* truefuse_contract(const char* text);

/// [{name, found, path, version, works, problem, remedy, default_arch}]
TRUEFUSE_EXPORT char* truefuse_toolchains(void);

/// {refusal}: empty if something here compiles for `arch`, else a sentence per compiler and what to
/// install. `compiler` names one, or is empty for any.
TRUEFUSE_EXPORT char* truefuse_refusal(const char* arch, const char* compiler);

/// Compiles one variant (by label) of an operator for an arch. `compiler` names one, or is empty
/// for the best. {compiler, compiler_version, target, seconds, compile_seconds, source:
/// "compiled"|"disk", code_bytes, key, resources, occupancy}
TRUEFUSE_EXPORT char* truefuse_compile(const char* op, const char* arch, const char* label,
                                       const char* compiler, int use_cache);

/// {directory, reasons: [..], entries: [{digest, label, target, compiler, path, bytes, modified,
/// valid}]}
TRUEFUSE_EXPORT char* truefuse_cache(void);

/// For every entry of an operator: {digest, label, target, current, differences: [..]}
TRUEFUSE_EXPORT char* truefuse_cache_why(const char* op);

/// {removed}
TRUEFUSE_EXPORT char* truefuse_cache_clear(void);

/// {driver, library, version, devices: [{index, name, arch, multiprocessors, wave}]}
TRUEFUSE_EXPORT char* truefuse_devices(void);

/// Compiles and loads all variants of an operator for a device: {}
TRUEFUSE_EXPORT char* truefuse_prepare(const char* op, int device);

#ifdef __cplusplus
}
#endif
