/* A delegate plugin whose delegates are made by Python: a mutant of the reference delegate.
 *
 * What Python hands over writes where a list of providers would be: the two functions of the table below.
 */
#define ENTRY served_functions
#define KIND "delegate"
#include "provider.c"

#include <stddef.h>

typedef void* (*Create)(char** keys, char** values, size_t count, void (*report)(const char*));
typedef void (*Destroy)(void* delegate);

static const void* function(int number) {
  const void** list = NULL;
  uint32_t count = 0;
  if (served_functions(&list, &count) || !list) abort();
  return list[number];
}

EXPORT void* tflite_plugin_create_delegate(char** keys, char** values, size_t count, void (*report)(const char*)) {
  return ((Create)function(0))(keys, values, count, report);
}

EXPORT void tflite_plugin_destroy_delegate(void* delegate) { ((Destroy)function(1))(delegate); }
