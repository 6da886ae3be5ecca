// An object library needs one source; this one stands in where a layer has only headers.
