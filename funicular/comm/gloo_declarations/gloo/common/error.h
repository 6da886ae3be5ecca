#pragma once
// Empty: c10d's headers include gloo's file of this name, and use nothing of it.
