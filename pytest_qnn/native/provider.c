/* A shared library whose QNN interface is made by Python: libQnnReference.so and its libQnnSystem.so.
 *
 * The exported getProviders function (ENTRY) forwards to a function that Python hands over through
 * pytest_qnn_serve. The first call that finds none asks Python for it: the interpreter of this process where
 * there is one, else one of its own, out of the libpython that PYTEST_QNN_LIBPYTHON names.
 *
 * ENTRY: name of the exported function. KIND: what pytest_qnn.qnn.reference.backend.serve is to make.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define NOT_SUPPORTED 1000
#ifndef MODULE /* with a function "serve" as that of this one */
#define MODULE "pytest_qnn.qnn.reference.backend"
#endif

typedef uint64_t (*GetProviders)(const void*** list, uint32_t* count);

static _Atomic(GetProviders) served;
static pthread_mutex_t booting = PTHREAD_MUTEX_INITIALIZER;

EXPORT void pytest_qnn_serve(GetProviders function) { atomic_store(&served, function); }

/* Python source that makes the interface and hands it to this very library. The path of the library goes as
 * hexadecimal digits, so that no sign of it can be taken for source. */
static char* source(int embedded) {
  Dl_info here;
  /* Of something that no other library has: an exported name may be taken from the first that was loaded. */
  if (!dladdr(&booting, &here) || !here.dli_fname) return NULL;
  size_t length = strlen(here.dli_fname);
  char* digits = malloc(2 * length + 1);
  char* text = malloc(2 * length + 512);
  if (!digits || !text) {
    free(digits);
    free(text);
    return NULL;
  }
  digits[0] = '\0';
  for (size_t i = 0; i < length; ++i) sprintf(digits + 2 * i, "%02x", (unsigned char)here.dli_fname[i]);
  const char* path =
      embedded ? "import os, sys\n"
                 "sys.path[:0] = os.environ.get('PYTEST_QNN_PATH', '').split(os.pathsep)\n"
               : "";
  sprintf(text,
          "%s"
          "from " MODULE " import serve as _pytest_qnn_serve\n"
          "_pytest_qnn_serve(bytes.fromhex('%s'), '%s')\n"
          "del _pytest_qnn_serve\n",
          path, digits, KIND);
  free(digits);
  return text;
}

/* Functions of the Python that lives in this process, or NULL. */
static void* python(const char* name) { return dlsym(RTLD_DEFAULT, name); }

static void run(int embedded) {
  int (*execute)(const char*) = (int (*)(const char*))python("PyRun_SimpleString");
  char* text = source(embedded);
  if (!execute || !text || execute(text)) fprintf(stderr, "pytest-qnn: the reference backend cannot be made\n");
  free(text);
}

static void ask_host(void) {
  int (*ensure)(void) = (int (*)(void))python("PyGILState_Ensure");
  void (*release)(int) = (void (*)(int))python("PyGILState_Release");
  if (!ensure || !release) return;
  int state = ensure();
  run(0);
  release(state);
}

static void ask_embedded(void) {
  const char* name = getenv("PYTEST_QNN_LIBPYTHON");
  /* Extension modules look for Python's functions in the global scope. */
  if (!dlopen(name ? name : "libpython3.so", RTLD_NOW | RTLD_GLOBAL)) {
    fprintf(stderr, "pytest-qnn: there is no Python in this process, and none to load: %s\n", dlerror());
    return;
  }
  void (*initialise)(int) = (void (*)(int))python("Py_InitializeEx");
  void* (*leave)(void) = (void* (*)(void))python("PyEval_SaveThread");
  if (!initialise || !leave) return;
  initialise(0);
  run(1);
  leave(); /* so that callbacks can take the lock from any thread */
}

static void boot(void) {
  pthread_mutex_lock(&booting);
  if (!atomic_load(&served)) {
    int (*initialised)(void) = (int (*)(void))python("Py_IsInitialized");
    if (initialised && initialised())
      ask_host();
    else
      ask_embedded();
  }
  pthread_mutex_unlock(&booting);
}

EXPORT uint64_t ENTRY(const void*** list, uint32_t* count) {
  if (!atomic_load(&served)) boot();
  GetProviders function = atomic_load(&served);
  return function ? function(list, count) : NOT_SUPPORTED;
}
