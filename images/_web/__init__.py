"""What all websites share: sessions, packs, the API, the interaction log, pages and their look."""
